//! An operator of the SDK as an instance of a task. Columns are viewed where they lie; what is emitted is copied once, to what earlier
//! calls have emitted, as the host does for components.

use std::marker::PhantomData;
use weir_model::{BatchRef, BlobsRef, CheckpointId, ExtrasRef, Timestamp};
use weir_sandbox::{CallError, EmittedRows, Rejection, SandboxError};
use weir_sdk::Columns;
use weir_sdk::native::{self, Emission, NativeOperator, Packed};
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
        let operator = operator.unwrap_or_else(|reason| panic!("a bench operator does not open: {reason}"));
        Ok(Box::new(Native { columns: operator.columns(), operator }))
    }

    /// Its captures are empty.
    fn restore(&self, _: &[&[u8]]) -> Result<Box<dyn OperatorInstance>, SandboxError> {
        self.instantiate()
    }
}

struct Native {
    /// What it wants, by input.
    columns: Vec<Columns>,
    operator: Box<dyn NativeOperator>,
}

impl OperatorInstance for Native {
    fn process(&mut self, input: u32, rows: BatchRef<'_>, emitted: &mut EmittedRows) -> Result<Vec<Rejection>, CallError> {
        let wanted = self.columns.get(input as usize).copied().unwrap_or(Columns::ROWS);
        let mut emit = |port, emission| append(emitted, port, emission, rows);
        let rejections = match rows.extras {
            // What every row has is viewed where it lies.
            None if Columns::ROWS.has(wanted) => {
                let rows = weir_sdk::BatchRef::new(rows.timestamps, to_sdk(rows.keys), to_sdk(rows.values));
                self.operator.process(input, rows, &mut emit)
            }
            _ => self.operator.process(input, Packed::new(&copy(rows), wanted).view(), &mut emit),
        };
        let rejections = rejections.map_err(CallError::Failed)?;
        Ok(rejections.into_iter().map(|rejection| Rejection { row: rejection.row, reason: rejection.reason }).collect())
    }

    fn advance(&mut self, watermark: Timestamp, emitted: &mut EmittedRows) -> Result<(), CallError> {
        let mut emit = |port, emission| append(emitted, port, emission, BatchRef::default());
        self.operator.advance(watermark, &mut emit).map_err(CallError::Failed)
    }

    fn finish(&mut self, emitted: &mut EmittedRows) -> Result<(), CallError> {
        let mut emit = |port, emission| append(emitted, port, emission, BatchRef::default());
        self.operator.finish(&mut emit).map_err(CallError::Failed)
    }

    fn capture(&mut self, _: CheckpointId) -> Result<Option<Box<dyn CapturedState>>, SandboxError> {
        Ok(None)
    }

    fn checkpoint_completed(&mut self, _: CheckpointId) {}
}

fn to_sdk(column: BlobsRef<'_>) -> weir_sdk::BlobsRef<'_> {
    weir_sdk::BlobsRef { ends: column.ends, bytes: column.bytes }
}

fn from_sdk(column: &weir_sdk::Blobs) -> BlobsRef<'_> {
    BlobsRef { ends: &column.ends, bytes: &column.bytes }
}

/// Rows with all they have, as the SDK holds them.
fn copy(rows: BatchRef<'_>) -> weir_sdk::Batch {
    let owned = |column: BlobsRef<'_>| weir_sdk::Blobs { ends: column.ends.to_vec(), bytes: column.bytes.to_vec() };
    weir_sdk::Batch {
        timestamps: rows.timestamps.to_vec(),
        keys: owned(rows.keys),
        values: owned(rows.values),
        extras: rows
            .extras
            .map(|extras| Box::new(weir_sdk::Extras { absent: extras.absent.to_vec(), headers: owned(extras.headers) })),
    }
}

/// Appends what a call has emitted, whose rows these are.
fn append(emitted: &mut EmittedRows, port: u32, emission: Emission, given: BatchRef<'_>) {
    let to = emitted.rows_to(port);
    match emission {
        Emission::Forward(rows) => to.gather(given, &rows),
        Emission::Values { rows, values, absent } => {
            let absent = (!absent.is_empty()).then_some(absent.as_slice());
            to.gather_with_values(given, &rows, from_sdk(&values), absent);
        }
        Emission::Rows(rows) => {
            let extras = rows.extras.as_deref();
            let extras = extras.map(|extras| ExtrasRef { absent: &extras.absent, headers: from_sdk(&extras.headers) });
            let (keys, values) = (from_sdk(&rows.keys), from_sdk(&rows.values));
            to.extend(BatchRef { timestamps: &rows.timestamps, keys, values, extras });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use weir_model::{Batch, RowRef};

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

    #[test]
    fn s114_rows_without_key_or_value_and_with_headers_pass_through_natively() {
        let mut headers = Vec::new();
        weir_model::push_header(&mut headers, b"trace", b"1");
        let mut rows = Batch::default();
        rows.push_row(RowRef { timestamp: 1, key: None, value: None, headers: &headers });
        rows.push_row(RowRef { timestamp: 2, key: Some(b""), value: Some(b""), headers: &[] });
        let mut identity = Factory::<bench_identity::Identity>::new("identity").instantiate().unwrap();
        let mut emitted = EmittedRows::new();
        identity.process(0, rows.view(), &mut emitted).unwrap();
        assert!(emitted.entries().eq([(0, rows.view())]), "{emitted:?}");

        let mut count = Factory::<bench_count::Count>::new("count").instantiate().unwrap();
        let mut emitted = EmittedRows::new();
        count.process(0, rows.view(), &mut emitted).unwrap();
        let (_, counted) = emitted.entries().next().unwrap();
        assert_eq!((counted.row(0).key, counted.row(0).headers, counted.row(1).key), (None, &headers[..], Some(&b""[..])));
        assert!((0..2).all(|row| counted.row(row).value.is_some()));
    }
}
