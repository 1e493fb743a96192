//! The shapes of `wit/weir.wit` as they cross the boundary: columns are lowered straight from borrowed slices, and
//! what a guest sends is seen in the guest's own memory until it has been checked.
//!
//! Only shapes; what the host does with them is in [`crate::host`] and [`crate::instance`].
#![allow(unsafe_code, reason = "wasmtime's derive macros implement unsafe traits; no unsafe code is written here")]

use wasmtime::component::{ComponentType, Lift, Lower, TypedFunc, WasmList, WasmStr};
use weir_model::{BatchRef, BlobsRef};

/// Interfaces the host imports from components and offers to them.
pub(crate) mod names {
    pub(crate) const LIFECYCLE: &str = "weir:operator/lifecycle@0.1.0";
    pub(crate) const PORTABLE: &str = "weir:operator/portable@0.1.0";
    pub(crate) const OUTPUT: &str = "weir:operator/output@0.1.0";
    pub(crate) const LOG: &str = "weir:operator/log@0.1.0";
    pub(crate) const METRICS: &str = "weir:operator/metrics@0.1.0";
    pub(crate) const AMBIENT: &str = "weir:operator/ambient@0.1.0";
    pub(crate) const STATE_WRITER: &str = "weir:operator/state-writer@0.1.0";
}

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

/// `log.level`.
#[derive(ComponentType, Lift, Clone, Copy)]
#[component(enum)]
#[repr(u8)]
#[allow(dead_code, reason = "lifted from its number, never named")]
pub(crate) enum LevelOut {
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
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
