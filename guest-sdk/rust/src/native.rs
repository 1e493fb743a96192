//! Operators outside WebAssembly: the same code linked into a native pipeline, to measure what the sandbox costs.

use crate::instance::Instance;
pub use crate::outputs::Emission;
pub use crate::pack::Packed;
use crate::{BatchRef, Columns, Context, Operator, Rejection, Timestamp};

/// An operator linked into the process that calls it. Log lines, metrics, time and randomness go to a stand-in of the thread.
pub trait NativeOperator: Send {
    /// The columns that it wants, by input.
    fn columns(&self) -> Vec<Columns>;

    /// Gives the operator rows, with the columns that it wants; what it emits goes to `emit` as (port, rows).
    ///
    /// # Errors
    /// Why the operator failed.
    fn process(&mut self, input: u32, rows: BatchRef<'_>, emit: &mut dyn FnMut(u32, Emission)) -> Result<Vec<Rejection>, String>;

    /// Tells the operator how far event time has come.
    ///
    /// # Errors
    /// Why the operator failed.
    fn advance(&mut self, watermark: Timestamp, emit: &mut dyn FnMut(u32, Emission)) -> Result<(), String>;

    /// Tells the operator that all inputs have ended.
    ///
    /// # Errors
    /// Why the operator failed.
    fn finish(&mut self, emit: &mut dyn FnMut(u32, Emission)) -> Result<(), String>;
}

/// Opens an operator in this process.
///
/// # Errors
/// What is wrong with the configuration, or why the operator did not open.
pub fn open<T: Operator + Send>(context: &Context) -> Result<Box<dyn NativeOperator>, String> {
    Ok(Box::new(Instance::<T>::open(context)?))
}

impl<T: Operator + Send> NativeOperator for Instance<T> {
    fn columns(&self) -> Vec<Columns> {
        Instance::columns(self)
    }

    fn process(&mut self, input: u32, rows: BatchRef<'_>, emit: &mut dyn FnMut(u32, Emission)) -> Result<Vec<Rejection>, String> {
        let rejections = Instance::process(self, input, rows)?;
        self.take_emitted().for_each(|(port, rows)| emit(port, rows));
        Ok(rejections)
    }

    fn advance(&mut self, watermark: Timestamp, emit: &mut dyn FnMut(u32, Emission)) -> Result<(), String> {
        Instance::advance(self, watermark)?;
        self.take_emitted().for_each(|(port, rows)| emit(port, rows));
        Ok(())
    }

    fn finish(&mut self, emit: &mut dyn FnMut(u32, Emission)) -> Result<(), String> {
        Instance::finish(self)?;
        self.take_emitted().for_each(|(port, rows)| emit(port, rows));
        Ok(())
    }
}
