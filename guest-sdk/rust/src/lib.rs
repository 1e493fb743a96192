//! Stream operators for Weir in Rust.
//!
//! An operator is a plain struct whose fields are its state. The host snapshots the memory it lives in, so a `HashMap` in it
//! is durable and exactly-once without any code. On a keyed input every key group has its own instance.
//!
//! ```
//! use weir_sdk::prelude::*;
//!
//! /// Counts the rows of each key.
//! #[derive(Default, Serialize, Deserialize)]
//! struct Count {
//!     seen: KeyMap<u64>,
//! }
//!
//! impl Operator for Count {
//!     type Config = NoConfig;
//!
//!     fn open(_: NoConfig, _: &Context) -> Result<Count, Error> {
//!         Ok(Count::default())
//!     }
//!
//!     fn process(&mut self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
//!         let seen = self.seen.or_default(row.key());
//!         *seen += 1;
//!         out.emit_json_value(row, seen)
//!     }
//! }
//!
//! weir_sdk::export!(Count, portable);
//! ```
//!
//! - Raw rows: [`Operator`]; rows whose values are JSON: [`TypedOperator`].
//! - Configuration: [`Operator::Config`], from the job file's `config` table.
//! - Several inputs: [`Row::input`]; several outputs: [`Outputs::to`].
//! - A row that cannot be processed: `return Err(row.reject("why"))`. A failure of the operator: [`Error::fail`].
//! - Event time: [`Operator::advance`], [`Outputs::watermark`].
//! - State that another version of the code can take over: [`export!`] with `portable`.
//! - Fields of JSON values without reading the rest: [`json::Path`]; exact amounts: [`Decimal`], [`Sum`]; time spans: [`Span`];
//!   times as logs write them: [`time::TimeFormat`].
//! - Tests without WebAssembly: `testing::Harness`.
//! - Log, metrics, time, randomness: [`info!`] and its like, [`metrics`], [`now`], [`random`].
//!
//! This crate never reads files, clocks or sockets: an operator has only what the host gives it.

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod bindings;
mod columns;
pub mod config;
mod decimal;
mod description;
mod error;
mod export;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod guest;
mod hash;
mod host;
#[doc(hidden)]
pub mod instance;
pub mod json;
mod key_map;
pub mod memory;
#[cfg(not(target_arch = "wasm32"))]
pub mod native;
mod operator;
mod outputs;
mod pack;
mod portable;
mod rows;
#[cfg(target_arch = "wasm32")]
mod scratch;
mod span;
mod sum;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

pub use columns::Columns;
pub use config::NoConfig;
pub use decimal::{Decimal, DecimalError};
pub use description::Description;
#[doc(hidden)]
pub use description::StateKind;
pub use error::{Error, OrReject};
pub use hash::{FastHasher, HashMap, HashSet};
pub use host::{Level, log, metrics, now, random};
pub use key_map::KeyMap;
pub use operator::{Operator, TypedOperator, TypedOutputs, TypedRow};
pub use outputs::{CALL_BYTES_MAX, HEADERS_BYTES_MAX, KEY_BYTES_MAX, Outputs, Port, VALUE_BYTES_MAX};
pub use portable::{Portable, StateRows, StateWriter};
pub use rows::{Batch, BatchRef, Blobs, BlobsRef, Context, Extras, KEY_ABSENT, NewRow, Rejection, Row, Timestamp, VALUE_ABSENT};
/// For `#[derive(JsonSchema)]` in a crate that has no schemars of its own: `#[schemars(crate = "weir_sdk::schemars")]`.
pub use schemars;
/// For `#[derive(Serialize, Deserialize)]` in a crate that has no serde of its own: `#[serde(crate = "weir_sdk::serde")]`. What
/// `weir component new` makes has one.
pub use serde;
pub use serde_json;
pub use span::Span;
pub use sum::Sum;
pub use weir_notation::time;
#[doc(hidden)]
pub use wit_bindgen;

/// What an operator usually needs.
pub mod prelude {
    pub use crate::{
        BatchRef, Columns, Context, Description, Error, KeyMap, NoConfig, Operator, OrReject, Outputs, Row, Timestamp,
        TypedOperator, TypedOutputs, TypedRow,
    };
    // With the crate itself, whose name `#[derive(JsonSchema)]` writes.
    pub use schemars::{self, JsonSchema};
    pub use serde::{Deserialize, Serialize};
}
