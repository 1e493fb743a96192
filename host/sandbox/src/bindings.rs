//! The shapes of `wit/weir.wit` as they cross the boundary: rows are lowered straight from the host's columns ([`crate::lowering`]), and
//! what a guest sends is seen in the guest's own memory until it has been checked.
//!
//! Only shapes; what the host does with them is in [`crate::host`] and [`crate::instance`].
#![allow(unsafe_code, reason = "wasmtime's derive macros implement unsafe traits; no unsafe code is written here")]

use wasmtime::component::{ComponentType, Lift, Lower, TypedFunc, WasmList, WasmStr, flags};
use weir_model::{BatchRef, Columns};

use crate::lowering::DataIn;

// `types.columns`.
flags! {
    ColumnFlags {
        #[component(name = "timestamps")]
        const TIMESTAMPS;
        #[component(name = "keys")]
        const KEYS;
        #[component(name = "values")]
        const VALUES;
        #[component(name = "hashes")]
        const HASHES;
        #[component(name = "headers")]
        const HEADERS;
        #[component(name = "absent-keys")]
        const ABSENT_KEYS;
        #[component(name = "absent-values")]
        const ABSENT_VALUES;
    }
}

impl From<Columns> for ColumnFlags {
    #[inline]
    fn from(columns: Columns) -> ColumnFlags {
        ColumnFlags { __inner0: columns.bits() }
    }
}

impl From<ColumnFlags> for Columns {
    #[inline]
    fn from(flags: ColumnFlags) -> Columns {
        // Bits beyond the names mean nothing in the canonical ABI.
        Columns::from_bits(flags.__inner0 & ALL_COLUMNS).unwrap_or(Columns::NONE)
    }
}

/// The bits of all names of `types.columns`.
const ALL_COLUMNS: u8 = 0x7f;

/// `types.batch` on its way in.
#[derive(ComponentType, Lower, Clone, Copy)]
#[component(record)]
pub(crate) struct BatchIn<'a> {
    rows: u32,
    has: ColumnFlags,
    data: DataIn<'a>,
}

impl<'a> BatchIn<'a> {
    /// Those columns of rows that `asked` names; with bits where some are absent.
    ///
    /// # Errors
    /// If they are more than a list of 32 bits has room for.
    #[inline]
    pub(crate) fn new(rows: BatchRef<'a>, asked: Columns) -> wasmtime::Result<BatchIn<'a>> {
        let data = DataIn::new(rows, asked)?;
        Ok(BatchIn { rows: u32::try_from(rows.len())?, has: data.has().into(), data })
    }
}

/// `types.batch` on its way out, still in the guest's memory.
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct BatchOut {
    pub(crate) rows: u32,
    pub(crate) has: ColumnFlags,
    pub(crate) data: WasmList<u8>,
}

/// `types.description` and its parts, still unchecked. Copied while the guest returns them: after that its allocator has them back. What
/// there may be in all is bounded as for any call (`HOSTCALL_BYTES_MAX`).
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct DescriptionOut {
    pub(crate) doc: String,
    pub(crate) inputs: Vec<InputPortOut>,
    pub(crate) outputs: Vec<OutputPortOut>,
    pub(crate) config: String,
    pub(crate) state: StateOut,
    #[component(name = "uses-store")]
    pub(crate) uses_store: bool,
    #[component(name = "uses-timers")]
    pub(crate) uses_timers: bool,
    pub(crate) pure: bool,
    pub(crate) scratch: Option<ScratchOut>,
}

/// `types.input-port`.
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct InputPortOut {
    pub(crate) name: String,
    pub(crate) doc: String,
}

/// `types.output-port`.
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct OutputPortOut {
    pub(crate) name: String,
    pub(crate) doc: String,
    #[component(name = "keeps-key")]
    pub(crate) keeps_key: bool,
}

/// `types.state`.
#[derive(ComponentType, Lift)]
#[component(variant)]
pub(crate) enum StateOut {
    #[component(name = "none")]
    None,
    #[component(name = "memory")]
    Memory,
    #[component(name = "portable")]
    Portable(u32),
}

/// `types.scratch`.
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct ScratchOut {
    pub(crate) offset: u32,
    pub(crate) len: u32,
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
pub(crate) type DescribeFunc = TypedFunc<(), (DescriptionOut,)>;
pub(crate) type OpenFunc = TypedFunc<(ContextIn<'static>,), (Result<Vec<ColumnFlags>, String>,)>;
pub(crate) type ProcessFunc = TypedFunc<(u32, BatchIn<'static>), (Result<Vec<RejectionOut>, String>,)>;
pub(crate) type AdvanceFunc = TypedFunc<(i64,), Outcome>;
pub(crate) type FinishFunc = TypedFunc<(), Outcome>;
pub(crate) type SaveFunc = TypedFunc<(), Outcome>;
pub(crate) type LoadFunc = TypedFunc<(BatchIn<'static>, &'static str), Outcome>;
pub(crate) type GetGlobalFunc = TypedFunc<(u32,), (u64,)>;
pub(crate) type SetGlobalFunc = TypedFunc<(u32, u64), ()>;
