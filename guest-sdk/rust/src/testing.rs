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
//!         if row.value().is_empty() {
//!             return Err(row.reject("nothing to say"));
//!         }
//!         out.forward(row);
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
use crate::native::{Emission, Packed};
use crate::portable::Portable;
use crate::{Batch, Columns, Context, Level, Operator, Timestamp, VALUE_ABSENT};

/// A row that an operator emitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// Output it went to.
    pub port: u32,
    /// Event time.
    pub timestamp: Timestamp,
    /// Key; no bytes where it has none.
    pub key: Vec<u8>,
    /// Value; no bytes where it has none.
    pub value: Vec<u8>,
    /// [`KEY_ABSENT`](crate::KEY_ABSENT), [`VALUE_ABSENT`](crate::VALUE_ABSENT).
    pub absent: u8,
    /// Names and values.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
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
        self.try_batch(input, &batch)
    }

    /// Gives the operator rows on an input, in one call: those of its columns that it asked for. Rows that have no key or no value, or have
    /// headers, are made by [`Batch::push_row`].
    ///
    /// # Errors
    /// Why the operator failed.
    pub fn try_batch(&mut self, input: u32, batch: &Batch) -> Result<(), String> {
        let wanted = self.instance.columns().get(input as usize).copied();
        let wanted = wanted.ok_or_else(|| format!("there is no input {input} in the operator's description"))?;
        let packed = Packed::new(batch, wanted);
        let result = self.instance.process(input, packed.view());
        self.collect(batch);
        let values = batch.values.view();
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
        self.collect(&Batch::default());
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
        self.collect(&Batch::default());
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

    /// Takes what was emitted in a call with these rows.
    fn collect(&mut self, given: &Batch) {
        let given = Packed::new(given, Columns::ROWS | Columns::HEADERS);
        let given = given.view();
        let given: Vec<crate::Row<'_>> = given.rows(0).collect();
        for (port, emission) in self.instance.take_emitted() {
            let mut put = |row: &crate::Row<'_>, value: Option<(&[u8], u8)>| {
                let key_absent = if row.has_key() { 0 } else { crate::KEY_ABSENT };
                let own = if row.is_tombstone() { VALUE_ABSENT } else { 0 };
                let (value, value_absent) = value.unwrap_or((row.value(), own));
                let headers = row.headers().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
                let (key, value, absent) = (row.key().to_vec(), value.to_vec(), key_absent | value_absent);
                self.emitted.push(Emitted { port, timestamp: row.timestamp(), key, value, absent, headers });
            };
            match emission {
                Emission::Rows(batch) => {
                    let packed = Packed::new(&batch, Columns::ROWS | Columns::HEADERS);
                    packed.view().rows(0).for_each(|row| put(&row, None));
                }
                Emission::Forward(rows) => rows.iter().for_each(|row| put(&given[*row as usize], None)),
                Emission::Values { rows, values, absent } => {
                    for (n, row) in rows.iter().enumerate() {
                        let absent = absent.get(n).copied().unwrap_or_default();
                        put(&given[*row as usize], Some((values.view().get(n), absent)));
                    }
                }
            }
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
        saved
            .iter()
            .try_for_each(|rows| new.instance.load(Packed::new(rows, Columns::KEYS | Columns::VALUES).view(), "test@0.0.0"))?;
        Ok(new)
    }
}
