//! One operator with its outputs: the calls of the contract, the same in the sandbox, in a native pipeline and in a test.

use crate::portable::{Pieces, Portable, StateRows, StateWriter};
use crate::{BatchRef, Columns, Context, Error, Operator, Outputs, Rejection, Timestamp, config};

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

    /// The columns that the operator wants, by input.
    pub fn columns(&self) -> Vec<Columns> {
        let inputs = T::describe().complete().inputs.len() as u32;
        (0..inputs).map(|input| self.operator.columns(input)).collect()
    }

    /// Gives the operator rows of one input: the columns that it wants, and no others.
    ///
    /// # Errors
    /// Why the operator failed.
    #[inline]
    pub fn process(&mut self, input: u32, rows: BatchRef<'_>) -> Result<Vec<Rejection>, String> {
        self.pieces.check_complete()?;
        self.outputs.begin(rows.len());
        let result = self.operator.process_batch(input, rows, &mut self.outputs);
        self.end(result)?;
        let rejections = std::mem::take(&mut self.outputs.rejections);
        if let Some(beyond) = rejections.iter().find(|rejection| rejection.row as usize >= rows.len()) {
            return Err(format!("row {} was rejected in a call with {} rows: {}", beyond.row, rows.len(), beyond.reason));
        }
        Ok(rejections)
    }

    /// Tells the operator how far event time has come.
    ///
    /// # Errors
    /// Why the operator failed.
    pub fn advance(&mut self, watermark: Timestamp) -> Result<(), String> {
        self.pieces.check_complete()?;
        self.outputs.begin(0);
        self.outputs.set_watermark(watermark);
        let result = self.operator.advance(watermark, &mut self.outputs);
        self.end(result)?;
        self.check_no_rejection("advance")
    }

    /// Tells the operator that all inputs have ended.
    ///
    /// # Errors
    /// Why the operator failed.
    pub fn finish(&mut self) -> Result<(), String> {
        self.pieces.check_complete()?;
        self.outputs.begin(0);
        let result = self.operator.finish(&mut self.outputs);
        self.end(result)?;
        self.check_no_rejection("finish")
    }

    /// After a call: hands over what was emitted, says what went wrong.
    #[inline]
    fn end(&mut self, result: Result<(), Error>) -> Result<(), String> {
        self.outputs.flush();
        let result = result.map_err(Error::into_message);
        match self.outputs.take_refused() {
            // No row is known that could be rejected for it, and it must not get lost.
            Some(refused) => result.and_then(|()| Err(refused.to_string())),
            None => result,
        }
    }

    /// A call without rows has none to reject: the host would look for it among the rows of another call.
    fn check_no_rejection(&mut self, call: &str) -> Result<(), String> {
        match self.outputs.rejections.pop() {
            Some(rejection) => Err(format!(
                "a row was rejected in {call}, which has no rows ({}); reject rows in process, fail in {call}",
                rejection.reason
            )),
            None => Ok(()),
        }
    }

    /// The operator.
    pub fn operator(&self) -> &T {
        &self.operator
    }

    /// What was emitted since the last time.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn take_emitted(&mut self) -> impl Iterator<Item = (u32, crate::outputs::Emission)> {
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
