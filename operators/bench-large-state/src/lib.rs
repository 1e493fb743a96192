//! 100 bytes of state a key, all of which every row rewrites; for each row, its key and the state's last byte: a count
//! that wraps.
//!
//! For measurements: the same work as LargeState in bench/flink. The bytes do not compress.

use weir_sdk::prelude::*;

const STATE_BYTES: usize = 100;

/// The operator.
#[derive(Debug, Default)]
pub struct LargeState {
    state: KeyMap<[u8; STATE_BYTES]>,
}

impl Operator for LargeState {
    type Config = NoConfig;

    fn open(_: NoConfig, _: &Context) -> Result<LargeState, Error> {
        Ok(LargeState::default())
    }

    #[inline]
    fn process(&mut self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
        let seed = row.value().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let key = row.key().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let state = self.state.get_or_insert_with(row.key(), || [0; STATE_BYTES]);
        let count = state[STATE_BYTES - 1].wrapping_add(1);
        let mut noise = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(key);
        for word in state.as_chunks_mut::<8>().0 {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            *word = noise.to_le_bytes();
        }
        state[STATE_BYTES - 1] = count;
        out.emit_value(row, &u64::from(count).to_le_bytes());
        Ok(())
    }
}

weir_sdk::export!(LargeState);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_sdk::testing::Harness;

    #[test]
    fn the_count_survives_in_the_last_byte() {
        let mut harness = Harness::<LargeState>::new("{}");
        for _ in 0..300 {
            harness.row(1, "12345678", "abcdefgh");
        }
        let counts: Vec<u8> = harness.take(0).iter().map(|row| row.value[0]).collect();
        assert_eq!(counts[..3], [1, 2, 3]);
        assert_eq!(counts[299], 44, "300 wraps at 256");
    }
}
