//! The trait an operator implements, and the trait of operators on typed rows.

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::outputs::Refused;
use crate::{BatchRef, Columns, Context, Description, Error, Outputs, Port, Row, Timestamp};

/// An operator on raw rows. Its fields are its state: durable and exactly-once without any code.
///
/// On a keyed input each key group has an instance of its own, so an instance sees all rows of a key, in order.
pub trait Operator: Sized + 'static {
    /// The operator's `config` table of the job file. [`NoConfig`](crate::NoConfig) if there is none. Keys it does not have are
    /// refused with the nearest valid one. Its JSON Schema tells people and the planner what it takes.
    type Config: DeserializeOwned + JsonSchema;

    /// What the operator is: its purpose and its ports. Unless others are named, it has an input `in` and an output `main`.
    fn describe() -> Description {
        Description::default()
    }

    /// Which columns of an input it reads: times, keys and values unless it says otherwise. What it does not ask for is not copied into its memory, and
    /// reading it all the same panics. The same at each call.
    fn columns(&self, input: u32) -> Columns {
        let _ = input;
        Columns::ROWS
    }

    /// Once, when the instance is new; not after a restore. All instances are alike after it, so it must not depend
    /// on time or chance.
    ///
    /// # Errors
    /// The job does not start.
    fn open(config: Self::Config, context: &Context) -> Result<Self, Error>;

    /// One row. An operator implements this or [`process_batch`](Operator::process_batch).
    ///
    /// # Errors
    /// A rejection sets this row aside; a failure fails the job. Neither takes back what was emitted, or changed in
    /// `self`, before it. A row is rejected too if what is emitted for it is larger than the host takes (see [`Port`]).
    fn process(&mut self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
        let _ = (row, out);
        Err(Error::fail("the operator implements neither process nor process_batch"))
    }

    /// Sees a batch before its rows are processed one by one. The place to [`KeyMap::warm`](crate::KeyMap::warm) what they will ask
    /// for; must not change what the operator does with them.
    #[inline]
    fn preview(&self, rows: BatchRef<'_>) {
        let _ = rows;
    }

    /// A whole batch of one input: override it where a loop over columns is faster than row by row. Set rows aside with
    /// [`Outputs::reject`], and send what may be too large with [`Port::try_write`], which tells of which row it is.
    ///
    /// # Errors
    /// Any error fails the job, and so does what was too large to be sent.
    #[inline]
    fn process_batch(&mut self, input: u32, rows: BatchRef<'_>, out: &mut Outputs) -> Result<(), Error> {
        self.preview(rows);
        for row in rows.rows(input) {
            let result = self.process(row, out);
            let refused = out.take_refused();
            if result.is_err() || refused.is_some() {
                reject_or_fail(row, result, refused, out)?;
            }
        }
        Ok(())
    }

    /// Event time has reached `watermark`: no row before it is expected any more. Strictly increasing, up to `Timestamp::MAX` at
    /// the end of all inputs. If more comes after that all the same (a job that had finished is run again with more input), it
    /// is told once more how far event time had come before the end, and goes on from there.
    ///
    /// # Errors
    /// Any error fails the job.
    fn advance(&mut self, watermark: Timestamp, out: &mut Outputs) -> Result<(), Error> {
        let _ = (watermark, out);
        Ok(())
    }

    /// All inputs have ended; the last chance to emit. Called again at the next end if more came after this one.
    ///
    /// # Errors
    /// Any error fails the job.
    fn finish(&mut self, out: &mut Outputs) -> Result<(), Error> {
        let _ = out;
        Ok(())
    }
}

#[cold]
fn reject_or_fail(row: Row<'_>, result: Result<(), Error>, refused: Option<Refused>, out: &mut Outputs) -> Result<(), Error> {
    let error = match (result, refused) {
        (Err(error), _) => error,
        (Ok(()), Some(refused)) => Error::reject(refused),
        (Ok(()), None) => return Ok(()),
    };
    if error.is_rejection() {
        out.reject(row.index(), error.message());
        return Ok(());
    }
    Err(Error::fail(format_args!("{}: {}", row.shown(), error.message())))
}

/// A row whose value has been read as JSON.
#[derive(Clone, Copy, Debug)]
pub struct TypedRow<'a, T> {
    /// Which input it came from, in the order of the description.
    pub input: u32,
    /// Event time.
    pub timestamp: Timestamp,
    /// Key; no bytes where it has none.
    pub key: &'a [u8],
    /// The value.
    pub value: T,
}

/// Where typed rows go.
#[derive(Debug)]
pub struct TypedOutputs<'a, T> {
    raw: &'a mut Outputs,
    value: std::marker::PhantomData<fn(&T)>,
}

impl<T: Serialize> TypedOutputs<'_, T> {
    fn new(raw: &mut Outputs) -> TypedOutputs<'_, T> {
        TypedOutputs { raw, value: std::marker::PhantomData }
    }

    /// Sends a row to the main output.
    ///
    /// # Errors
    /// A failure, if the value has no JSON form.
    pub fn emit(&mut self, timestamp: Timestamp, key: &[u8], value: &T) -> Result<(), Error> {
        self.raw.emit_json(timestamp, key, value)
    }

    /// Another output, on which values may have any type.
    pub fn to(&mut self, port: u32) -> Port<'_> {
        self.raw.to(port)
    }

    /// See [`Outputs::watermark`].
    pub fn watermark(&self) -> Timestamp {
        self.raw.watermark()
    }
}

/// An operator on rows whose values are JSON. A row that is not a [`TypedOperator::In`] is rejected with the reason.
pub trait TypedOperator: Sized + 'static {
    /// See [`Operator::Config`].
    type Config: DeserializeOwned + JsonSchema;
    /// A value of the input.
    type In: DeserializeOwned;
    /// A value of the main output.
    type Out: Serialize;

    /// See [`Operator::describe`].
    fn describe() -> Description {
        Description::default()
    }

    /// See [`Operator::open`].
    ///
    /// # Errors
    /// The job does not start.
    fn open(config: Self::Config, context: &Context) -> Result<Self, Error>;

    /// See [`Operator::process`].
    ///
    /// # Errors
    /// A rejection sets this row aside; a failure fails the job.
    fn process(&mut self, row: TypedRow<'_, Self::In>, out: &mut TypedOutputs<'_, Self::Out>) -> Result<(), Error>;

    /// See [`Operator::advance`].
    ///
    /// # Errors
    /// Any error fails the job.
    fn advance(&mut self, watermark: Timestamp, out: &mut TypedOutputs<'_, Self::Out>) -> Result<(), Error> {
        let _ = (watermark, out);
        Ok(())
    }

    /// See [`Operator::finish`].
    ///
    /// # Errors
    /// Any error fails the job.
    fn finish(&mut self, out: &mut TypedOutputs<'_, Self::Out>) -> Result<(), Error> {
        let _ = out;
        Ok(())
    }
}

impl<T: TypedOperator> Operator for T {
    type Config = T::Config;

    fn describe() -> Description {
        <T as TypedOperator>::describe()
    }

    fn open(config: Self::Config, context: &Context) -> Result<Self, Error> {
        TypedOperator::open(config, context)
    }

    fn process(&mut self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
        let value = row.json()?;
        let row = TypedRow { input: row.input(), timestamp: row.timestamp(), key: row.key(), value };
        TypedOperator::process(self, row, &mut TypedOutputs::new(out))
    }

    fn advance(&mut self, watermark: Timestamp, out: &mut Outputs) -> Result<(), Error> {
        TypedOperator::advance(self, watermark, &mut TypedOutputs::new(out))
    }

    fn finish(&mut self, out: &mut Outputs) -> Result<(), Error> {
        TypedOperator::finish(self, &mut TypedOutputs::new(out))
    }
}
