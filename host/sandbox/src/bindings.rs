//! The shapes of `wit/weir.wit` as they cross the boundary: columns are lowered straight from borrowed slices, and
//! what a guest sends is seen in the guest's own memory until it has been checked.
//!
//! Only shapes; what the host does with them is in [`crate::host`] and [`crate::instance`].
#![allow(unsafe_code, reason = "wasmtime's derive macros implement unsafe traits; no unsafe code is written here")]

use wasmtime::component::{ComponentType, Lift, Lower, TypedFunc, WasmList, WasmStr};
use weir_model::{BatchRef, BlobsRef};

/// `types.blobs` on its way in.
#[derive(ComponentType, Lower, Clone, Copy)]
#[component(record)]
pub(crate) struct BlobsIn<'a> {
    ends: &'a [u32],
    bytes: &'a [u8],
}

/// `types.batch` on its way in.
#[derive(ComponentType, Lower, Clone, Copy)]
#[component(record)]
pub(crate) struct BatchIn<'a> {
    timestamps: &'a [i64],
    keys: BlobsIn<'a>,
    values: BlobsIn<'a>,
}

impl<'a> From<BlobsRef<'a>> for BlobsIn<'a> {
    fn from(blobs: BlobsRef<'a>) -> BlobsIn<'a> {
        BlobsIn { ends: blobs.ends, bytes: blobs.bytes }
    }
}

impl<'a> From<BatchRef<'a>> for BatchIn<'a> {
    fn from(batch: BatchRef<'a>) -> BatchIn<'a> {
        BatchIn { timestamps: batch.timestamps, keys: batch.keys.into(), values: batch.values.into() }
    }
}

/// `types.blobs` on its way out, still in the guest's memory.
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct BlobsOut {
    pub(crate) ends: WasmList<u32>,
    pub(crate) bytes: WasmList<u8>,
}

/// `types.batch` on its way out, still in the guest's memory.
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct BatchOut {
    pub(crate) timestamps: WasmList<i64>,
    pub(crate) keys: BlobsOut,
    pub(crate) values: BlobsOut,
}

/// `types.context`.
#[derive(ComponentType, Lower, Clone, Copy)]
#[component(record)]
pub(crate) struct ContextIn<'a> {
    pub(crate) job: &'a str,
    pub(crate) operator: &'a str,
    pub(crate) component: &'a str,
    pub(crate) config: &'a str,
}

/// `types.rejection`.
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct RejectionOut {
    pub(crate) row: u32,
    pub(crate) reason: String,
}

/// How serious a log line is: `log.level`.
#[derive(ComponentType, Lift, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[component(enum)]
#[repr(u8)]
pub enum LogLevel {
    /// For whoever writes the operator.
    #[component(name = "debug")]
    Debug,
    /// Worth knowing.
    #[component(name = "info")]
    Info,
    /// Unexpected, handled.
    #[component(name = "warn")]
    Warn,
    /// Someone should look.
    #[component(name = "error")]
    Error,
}

/// Text a guest sends, still in its memory.
pub(crate) type TextOut = WasmStr;

/// `result<_, string>`.
pub(crate) type Outcome = (Result<(), String>,);

// `TypedFunc` is covariant in its parameters, so these serve calls with any shorter lifetime.
pub(crate) type OpenFunc = TypedFunc<(ContextIn<'static>,), Outcome>;
pub(crate) type ProcessFunc = TypedFunc<(u32, BatchIn<'static>), (Result<Vec<RejectionOut>, String>,)>;
pub(crate) type AdvanceFunc = TypedFunc<(i64,), Outcome>;
pub(crate) type FinishFunc = TypedFunc<(), Outcome>;
pub(crate) type SaveFunc = TypedFunc<(), Outcome>;
pub(crate) type LoadFunc = TypedFunc<(BatchIn<'static>, &'static str), Outcome>;
pub(crate) type GetGlobalFunc = TypedFunc<(u32,), (u64,)>;
pub(crate) type SetGlobalFunc = TypedFunc<(u32, u64), ()>;
