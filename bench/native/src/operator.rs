//! An operator of the SDK as an instance of a task. Columns are moved between the two crates' batches, or copied once to what
//! earlier calls have emitted.

use std::marker::PhantomData;
use weir_model::{Batch, BatchRef, Blobs, CheckpointId, Timestamp};
use weir_sandbox::{CallError, EmittedRows, Rejection, SandboxError};
use weir_sdk::native::{self, NativeOperator};
use weir_task::{CapturedState, InstanceFactory, OperatorInstance};

/// Makes instances of the operator `T`.
pub(crate) struct Factory<T> {
    context: weir_sdk::Context,
    operator: PhantomData<fn() -> T>,
}

impl<T> Factory<T> {
    /// For the operator of this id in the job file.
    pub(crate) fn new(uid: &str) -> Factory<T> {
        let context = weir_sdk::Context { operator: uid.to_string(), config: "{}".to_string(), ..weir_sdk::Context::default() };
        Factory { context, operator: PhantomData }
    }
}

impl<T: weir_sdk::Operator + Send> InstanceFactory for Factory<T> {
    fn instantiate(&self) -> Result<Box<dyn OperatorInstance>, SandboxError> {
        let operator = native::open::<T>(&self.context);
        // The bench operators take no configuration, so opening them cannot fail.
        Ok(Box::new(Native { operator: operator.unwrap_or_else(|reason| panic!("a bench operator does not open: {reason}")) }))
    }

    /// Its captures are empty.
    fn restore(&self, _: &[&[u8]]) -> Result<Box<dyn OperatorInstance>, SandboxError> {
        self.instantiate()
    }
}

struct Native {
    operator: Box<dyn NativeOperator>,
}

impl OperatorInstance for Native {
    fn process(&mut self, input: u32, rows: BatchRef<'_>, emitted: &mut EmittedRows) -> Result<Vec<Rejection>, CallError> {
        let rejections = self.operator.process(input, to_sdk(rows), &mut |port, rows| append(emitted, port, rows));
        let rejections = rejections.map_err(CallError::Failed)?;
        Ok(rejections.into_iter().map(|rejection| Rejection { row: rejection.row, reason: rejection.reason }).collect())
    }

    fn advance(&mut self, watermark: Timestamp, emitted: &mut EmittedRows) -> Result<(), CallError> {
        self.operator.advance(watermark, &mut |port, rows| append(emitted, port, rows)).map_err(CallError::Failed)
    }

    fn finish(&mut self, emitted: &mut EmittedRows) -> Result<(), CallError> {
        self.operator.finish(&mut |port, rows| append(emitted, port, rows)).map_err(CallError::Failed)
    }

    fn capture(&mut self, _: CheckpointId) -> Result<Option<Box<dyn CapturedState>>, SandboxError> {
        Ok(None)
    }

    fn checkpoint_completed(&mut self, _: CheckpointId) {}
}

fn to_sdk(rows: BatchRef<'_>) -> weir_sdk::BatchRef<'_> {
    let keys = weir_sdk::BlobsRef { ends: rows.keys.ends, bytes: rows.keys.bytes };
    let values = weir_sdk::BlobsRef { ends: rows.values.ends, bytes: rows.values.bytes };
    weir_sdk::BatchRef { timestamps: rows.timestamps, keys, values }
}

/// Appends rows that the operator emitted; the first of them without a copy, so that this is no slower than it has to be.
fn append(emitted: &mut EmittedRows, port: u32, rows: weir_sdk::Batch) {
    let keys = Blobs { ends: rows.keys.ends, bytes: rows.keys.bytes };
    let values = Blobs { ends: rows.values.ends, bytes: rows.values.bytes };
    let rows = Batch { timestamps: rows.timestamps, keys, values, extras: None };
    let to = emitted.rows_to(port);
    if to.is_empty() { *to = rows } else { to.extend(rows.view()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn rows_pass_through_a_native_operator_and_its_state_stays_in_the_instance() {
        let factory = Factory::<bench_count::Count>::new("count");
        let mut instance = factory.instantiate().unwrap();
        let mut rows = Batch::default();
        rows.push(1, b"key", b"value");
        let (mut emitted, mut expected) = (EmittedRows::new(), Batch::default());
        for count in 1..=2u64 {
            assert!(instance.process(0, rows.view(), &mut emitted).unwrap().is_empty());
            expected.push(1, b"key", &count.to_le_bytes());
        }
        assert!(emitted.entries().eq([(0, expected.view())]), "{emitted:?}");
        assert!(instance.capture(CheckpointId(1)).unwrap().is_none());
    }
}
