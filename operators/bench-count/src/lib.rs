//! Running count of the rows of each key: for each row, its key and the count so far (u64, little endian).
//!
//! For measurements: the same work as RunningCount in bench/flink, as fast as the contract allows. Linked as an rlib it
//! is the native peer of its own component.

use weir_sdk::prelude::*;

/// The operator.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Count {
    seen: KeyMap<u64>,
}

impl Operator for Count {
    type Config = NoConfig;

    fn open(_: NoConfig, _: &Context) -> Result<Count, Error> {
        Ok(Count::default())
    }

    fn columns(&self, _: u32) -> Columns {
        Columns::KEYS
    }

    #[inline]
    fn preview(&self, rows: BatchRef<'_>) {
        self.seen.warm(rows.keys());
    }

    #[inline]
    fn process(&mut self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
        let seen = self.seen.or_default(row.key());
        *seen += 1;
        out.emit_value(row, &seen.to_le_bytes());
        Ok(())
    }
}

weir_sdk::export!(Count, portable);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_sdk::testing::Harness;

    fn counts(harness: &mut Harness<Count>) -> Vec<(Vec<u8>, u64)> {
        let count = |value: Vec<u8>| u64::from_le_bytes(value.try_into().expect("eight bytes"));
        harness.take(0).into_iter().map(|row| (row.key, count(row.value))).collect()
    }

    #[test]
    fn every_row_gives_its_keys_count_so_far() {
        let mut harness = Harness::<Count>::new("{}");
        harness.row(1, "a", "x").row(2, "b", "x").row(3, "a", "x");
        assert_eq!(counts(&mut harness), [(b"a".to_vec(), 1), (b"b".to_vec(), 1), (b"a".to_vec(), 2)]);
    }

    #[test]
    fn counts_go_on_after_an_upgrade() {
        let mut old = Harness::<Count>::new("{}");
        old.row(1, "a", "x").row(2, "a", "x");
        let mut new = old.upgrade::<Count>("{}").expect("the state fits");
        new.row(3, "a", "x");
        assert_eq!(counts(&mut new), [(b"a".to_vec(), 3)]);
    }
}
