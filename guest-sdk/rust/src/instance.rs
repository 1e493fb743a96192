//! One operator with its outputs: the calls of the contract, the same in the sandbox, in a native pipeline and in a test.

use crate::portable::{Pieces, Portable, StateRows, StateWriter};
use crate::{BatchRef, Context, Error, Operator, Outputs, Rejection, Timestamp, config};

/// An operator as the host sees it.
#[derive(Debug)]
pub struct Instance<T> {
    operator: T,
    outputs: Outputs,
    /// Saved state of which not all pieces have arrived yet.
    pieces: Pieces,
}

impl<T: Operator> Instance<T> {
    /// Reads the configuration and opens the operator.
    ///
    /// # Errors
    /// What is wrong with the configuration, or why the operator did not open.
    pub fn open(context: &Context) -> Result<Instance<T>, String> {
        let config = config::read(&context.config)?;
        let operator = T::open(config, context).map_err(Error::into_message)?;
        Ok(Instance { operator, outputs: Outputs::new(), pieces: Pieces::default() })
    }

    /// Gives the operator rows of one input.
    ///
    /// # Errors
    /// Why the operator failed.
    #[inline]
    pub fn process(&mut self, input: u32, rows: BatchRef<'_>) -> Result<Vec<Rejection>, String> {
        self.pieces.check_complete()?;
        let result = self.operator.process_batch(input, rows, &mut self.outputs);
        self.outputs.flush();
        result.map_err(Error::into_message)?;
        Ok(std::mem::take(&mut self.outputs.rejections))
    }

    /// Tells the operator how far event time has come.
    ///
    /// # Errors
    /// Why the operator failed.
    pub fn advance(&mut self, watermark: Timestamp) -> Result<(), String> {
        self.pieces.check_complete()?;
        self.outputs.set_watermark(watermark);
        let result = self.operator.advance(watermark, &mut self.outputs);
        self.outputs.flush();
        result.map_err(Error::into_message)
    }

    /// Tells the operator that all inputs have ended.
    ///
    /// # Errors
    /// Why the operator failed.
    pub fn finish(&mut self) -> Result<(), String> {
        self.pieces.check_complete()?;
        let result = self.operator.finish(&mut self.outputs);
        self.outputs.flush();
        result.map_err(Error::into_message)
    }

    /// The operator.
    pub fn operator(&self) -> &T {
        &self.operator
    }

    /// What was emitted since the last time.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn take_emitted(&mut self) -> impl Iterator<Item = (u32, crate::Batch)> {
        self.outputs.take_emitted()
    }
}

impl<T: Operator + Portable> Instance<T> {
    /// Writes the state as rows.
    ///
    /// # Errors
    /// Why the operator could not.
    pub fn save(&self, write: &mut dyn FnMut(&crate::Batch)) -> Result<(), String> {
        self.pieces.check_complete()?;
        let mut writer = StateWriter::new(write);
        self.operator.save(&mut writer).map_err(Error::into_message)?;
        writer.flush();
        Ok(())
    }

    /// Takes over rows that `written_by` saved.
    ///
    /// # Errors
    /// Why the operator could not.
    pub fn load(&mut self, rows: BatchRef<'_>, written_by: &str) -> Result<(), String> {
        self.operator.load(StateRows::new(rows, written_by, &mut self.pieces)).map_err(Error::into_message)
    }
}
