//! Tests operators without WebAssembly and without a host.
//!
//! ```
//! use weir_sdk::prelude::*;
//! use weir_sdk::testing::Harness;
//!
//! struct Echo;
//! impl Operator for Echo {
//!     type Config = NoConfig;
//!     fn open(_: NoConfig, _: &Context) -> Result<Echo, Error> {
//!         Ok(Echo)
//!     }
//!     fn process(&mut self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
//!         if row.value.is_empty() {
//!             return Err(row.reject("nothing to say"));
//!         }
//!         out.emit(row.timestamp, row.key, row.value);
//!         Ok(())
//!     }
//! }
//!
//! let mut echo = Harness::<Echo>::new("{}");
//! echo.row(5, "anna", "hello");
//! echo.row(6, "bert", "");
//! assert_eq!(echo.take_text(0), ["5 anna hello"]);
//! assert_eq!(echo.take_rejections()[0].reason, "nothing to say");
//! ```

use crate::host::imp;
use crate::instance::Instance;
use crate::portable::Portable;
use crate::{Batch, Context, Level, Operator, Timestamp};

/// A row that an operator emitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// Output it went to.
    pub port: u32,
    /// Event time.
    pub timestamp: Timestamp,
    /// Key.
    pub key: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

/// A row that an operator set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Its value.
    pub value: Vec<u8>,
    /// Why.
    pub reason: String,
}

/// An operator under test. Methods panic where the operator fails; those that start with `try_` return the error.
///
/// What the operator logs and counts goes to a stand-in that belongs to the thread; a new harness clears it.
#[derive(Debug)]
pub struct Harness<T: Operator> {
    instance: Instance<T>,
    emitted: Vec<Emitted>,
    rejected: Vec<Rejected>,
}

impl<T: Operator> Harness<T> {
    /// Opens an operator with a configuration in JSON.
    ///
    /// # Panics
    /// If the operator does not open.
    #[track_caller]
    pub fn new(config: &str) -> Harness<T> {
        Harness::try_new(config).unwrap_or_else(|error| panic!("the operator did not open: {error}"))
    }

    /// Opens an operator with a configuration in JSON.
    ///
    /// # Errors
    /// What the job's log would say.
    pub fn try_new(config: &str) -> Result<Harness<T>, String> {
        imp::with(|stand| *stand = imp::Stand::default());
        let context = Context {
            job: "test".to_owned(),
            operator: "operator".to_owned(),
            component: "test@0.0.0".to_owned(),
            config: config.to_owned(),
        };
        Ok(Harness { instance: Instance::open(&context)?, emitted: Vec::new(), rejected: Vec::new() })
    }

    /// Gives the operator one row on its first input.
    ///
    /// # Panics
    /// If the operator fails.
    #[track_caller]
    pub fn row(&mut self, timestamp: Timestamp, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Harness<T> {
        self.input(0, &[(timestamp, key.as_ref(), value.as_ref())])
    }

    /// Gives the operator rows on an input, in one call.
    ///
    /// # Panics
    /// If the operator fails.
    #[track_caller]
    pub fn input(&mut self, input: u32, rows: &[(Timestamp, &[u8], &[u8])]) -> &mut Harness<T> {
        self.try_input(input, rows).unwrap_or_else(|error| panic!("the operator failed: {error}"));
        self
    }

    /// Gives the operator rows on an input, in one call.
    ///
    /// # Errors
    /// Why the operator failed.
    pub fn try_input(&mut self, input: u32, rows: &[(Timestamp, &[u8], &[u8])]) -> Result<(), String> {
        let mut batch = Batch::default();
        rows.iter().for_each(|(timestamp, key, value)| batch.push(*timestamp, key, value));
        let result = self.instance.process(input, batch.view());
        self.collect();
        let values = batch.view().values;
        self.rejected.extend(
            result?
                .into_iter()
                .map(|rejection| Rejected { value: values.get(rejection.row as usize).to_vec(), reason: rejection.reason }),
        );
        Ok(())
    }

    /// Tells the operator how far event time has come.
    ///
    /// # Panics
    /// If the operator fails.
    #[track_caller]
    pub fn advance(&mut self, watermark: Timestamp) -> &mut Harness<T> {
        self.try_advance(watermark).unwrap_or_else(|error| panic!("the operator failed: {error}"));
        self
    }

    /// Tells the operator how far event time has come.
    ///
    /// # Errors
    /// Why the operator failed.
    pub fn try_advance(&mut self, watermark: Timestamp) -> Result<(), String> {
        let result = self.instance.advance(watermark);
        self.collect();
        result
    }

    /// Tells the operator that all inputs have ended. Like the host, first tells it that event time has.
    ///
    /// # Panics
    /// If the operator fails.
    #[track_caller]
    pub fn finish(&mut self) -> &mut Harness<T> {
        self.advance(Timestamp::MAX);
        self.instance.finish().unwrap_or_else(|error| panic!("the operator failed: {error}"));
        self.collect();
        self
    }

    /// The rows that went to an output since they were last taken.
    pub fn take(&mut self, port: u32) -> Vec<Emitted> {
        let (taken, kept) = std::mem::take(&mut self.emitted).into_iter().partition(|row| row.port == port);
        self.emitted = kept;
        taken
    }

    /// The rows that went to an output since they were last taken, as `time key value`.
    pub fn take_text(&mut self, port: u32) -> Vec<String> {
        let text = |row: Emitted| {
            format!("{} {} {}", row.timestamp, String::from_utf8_lossy(&row.key), String::from_utf8_lossy(&row.value))
        };
        self.take(port).into_iter().map(text).collect()
    }

    /// The rows that were set aside since they were last taken.
    pub fn take_rejections(&mut self) -> Vec<Rejected> {
        std::mem::take(&mut self.rejected)
    }

    /// The operator itself.
    pub fn operator(&self) -> &T {
        self.instance.operator()
    }

    /// The lines the operator has logged.
    pub fn lines(&self) -> Vec<(Level, String)> {
        imp::with(|stand| stand.lines.clone())
    }

    /// What the operator has added to a counter.
    pub fn counter(&self, counter: &str) -> u64 {
        imp::with(|stand| stand.counters.get(counter).copied().unwrap_or_default())
    }

    /// What the operator has set a gauge to.
    pub fn gauge(&self, gauge: &str) -> Option<f64> {
        imp::with(|stand| stand.gauges.get(gauge).copied())
    }

    /// Sets what [`now`](crate::now) answers: 0 at first.
    pub fn set_now(&mut self, now: Timestamp) {
        imp::with(|stand| stand.now = now);
    }

    /// Leaves the operator so many bytes for more state: what [`memory`](crate::memory) then says. `None`: no end.
    pub fn set_room(&mut self, bytes: Option<usize>) {
        imp::with(|stand| stand.room = bytes);
        crate::memory::forget();
    }

    fn collect(&mut self) {
        for (port, batch) in self.instance.take_emitted() {
            let rows = batch.view();
            self.emitted.extend(rows.rows(0).map(|row| Emitted {
                port,
                timestamp: row.timestamp,
                key: row.key.to_vec(),
                value: row.value.to_vec(),
            }));
        }
    }
}

impl<T: Operator + Portable> Harness<T> {
    /// A new instance, with this configuration, that has taken over the state of this one.
    ///
    /// # Errors
    /// Why the state could not be saved or loaded.
    pub fn upgrade<U: Operator + Portable>(&self, config: &str) -> Result<Harness<U>, String> {
        let mut saved = Vec::new();
        self.instance.save(&mut |rows| saved.push(rows.clone()))?;
        let mut new = Harness::try_new(config)?;
        saved.iter().try_for_each(|rows| new.instance.load(rows.view(), "test@0.0.0"))?;
        Ok(new)
    }
}
