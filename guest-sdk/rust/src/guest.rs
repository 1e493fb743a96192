//! The one operator of a component, and the calls that reach it. Only on wasm32.

use std::cell::RefCell;
use std::thread::LocalKey;

use crate::bindings::weir::operator::types as wit;
use crate::columns::Columns;
use crate::description::StateKind;
use crate::instance::Instance;
use crate::portable::Portable;
use crate::scratch::{self, Lent};
use crate::{Context, Level, Operator, Timestamp, config, pack};

/// Where `export!` keeps the operator. A plain static: a component has one thread.
pub type Slot<T> = RefCell<Option<Instance<T>>>;

/// `lifecycle.describe`.
pub fn describe<T: Operator>(state: StateKind) -> wit::Description {
    let description = T::describe().complete();
    let (offset, len) = scratch::place();
    wit::Description {
        doc: description.doc,
        inputs: description.inputs.into_iter().map(|port| wit::InputPort { name: port.name, doc: port.doc }).collect(),
        outputs: description
            .outputs
            .into_iter()
            .map(|port| wit::OutputPort { name: port.name, doc: port.doc, keeps_key: port.keeps_key })
            .collect(),
        config: config::schema::<T::Config>(),
        state: match state {
            StateKind::None => wit::State::None,
            StateKind::Memory => wit::State::Memory,
            StateKind::Portable(version) => wit::State::Portable(version),
        },
        uses_store: false,
        uses_timers: false,
        pure: description.pure,
        scratch: Some(wit::Scratch { offset, len }),
    }
}

/// `lifecycle.open`.
///
/// # Errors
/// See [`Instance::open`].
pub fn open<T: Operator>(slot: &'static LocalKey<Slot<T>>, context: wit::Context) -> Result<Vec<wit::Columns>, String> {
    std::panic::set_hook(Box::new(|panic| crate::log(Level::Error, &panic.to_string())));
    let wit::Context { job, operator, component, config } = context;
    let instance = Instance::open(&Context { job, operator, component, config })?;
    let columns = instance.columns().into_iter().map(pack::columns_out).collect();
    slot.set(Some(instance));
    scratch::end_call();
    Ok(columns)
}

#[inline]
fn with<T: Operator, R>(
    slot: &'static LocalKey<Slot<T>>,
    f: impl FnOnce(&mut Instance<T>) -> Result<R, String>,
) -> Result<R, String> {
    scratch::begin_call();
    let result = slot.with_borrow_mut(|instance| match instance {
        Some(instance) => f(instance),
        None => Err("called before open".to_owned()),
    });
    scratch::end_call();
    result
}

/// `lifecycle.process`.
///
/// # Errors
/// See [`Instance::process`].
#[inline]
pub fn process<T: Operator>(
    slot: &'static LocalKey<Slot<T>>,
    input: u32,
    rows: wit::Batch,
) -> Result<Vec<wit::Rejection>, String> {
    let (count, has, data) = (rows.rows, Columns::from_bits(rows.has.bits()), Lent::new(rows.data));
    let rejections = with(slot, |instance| instance.process(input, pack::view(count, has, &data)))?;
    Ok(rejections.into_iter().map(|rejection| wit::Rejection { row: rejection.row, reason: rejection.reason }).collect())
}

/// `lifecycle.advance`.
///
/// # Errors
/// See [`Instance::advance`].
pub fn advance<T: Operator>(slot: &'static LocalKey<Slot<T>>, watermark: Timestamp) -> Result<(), String> {
    with(slot, |instance| instance.advance(watermark))
}

/// `lifecycle.finish`.
///
/// # Errors
/// See [`Instance::finish`].
pub fn finish<T: Operator>(slot: &'static LocalKey<Slot<T>>) -> Result<(), String> {
    with(slot, Instance::finish)
}

/// `portable.save`.
///
/// # Errors
/// See [`Instance::save`].
pub fn save<T: Operator + Portable>(slot: &'static LocalKey<Slot<T>>) -> Result<(), String> {
    let mut write = |rows: &crate::Batch| {
        let mut data = Vec::new();
        let has = pack::pack_state(rows, &mut data);
        crate::bindings::portable::weir::operator::state_writer::write(&pack::batch_out(rows.len(), has, data));
    };
    with(slot, |instance| instance.save(&mut write))
}

/// `portable.load`.
///
/// # Errors
/// See [`Instance::load`].
pub fn load<T: Operator + Portable>(
    slot: &'static LocalKey<Slot<T>>,
    rows: wit::Batch,
    written_by: String,
) -> Result<(), String> {
    let (count, has) = (rows.rows, Columns::from_bits(rows.has.bits()));
    let (data, written_by) = (Lent::new(rows.data), Lent::new(written_by.into_bytes()));
    let written_by = String::from_utf8_lossy(&written_by);
    with(slot, |instance| instance.load(pack::view(count, has, &data), &written_by))
}
