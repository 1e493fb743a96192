//! Passes every row on as it is. For measurements: what crossing the sandbox costs.

use weir_sdk::prelude::*;

/// The operator.
#[derive(Debug)]
pub struct Identity;

impl Operator for Identity {
    type Config = NoConfig;

    fn open(_: NoConfig, _: &Context) -> Result<Identity, Error> {
        Ok(Identity)
    }

    fn columns(&self, _: u32) -> Columns {
        Columns::NONE
    }

    #[inline]
    fn process(&mut self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
        out.forward(row);
        Ok(())
    }
}

weir_sdk::export!(Identity, stateless);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_sdk::testing::Harness;

    #[test]
    fn rows_pass_unchanged() {
        let mut harness = Harness::<Identity>::new("{}");
        harness.row(7, "k", "some value").row(6, "", "");
        assert_eq!(harness.take_text(0), ["7 k some value", "6  "]);
    }
}
