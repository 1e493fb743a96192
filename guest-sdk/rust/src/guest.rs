//! The one operator of a component, and the calls that reach it. Only on wasm32.

use std::cell::RefCell;
use std::thread::LocalKey;

use crate::instance::Instance;
use crate::portable::Portable;
use crate::{Batch, Context, Level, Operator, Rejection, Timestamp};

/// Where `export!` keeps the operator. A plain static: a component has one thread.
pub type Slot<T> = RefCell<Option<Instance<T>>>;

/// `lifecycle.open`.
///
/// # Errors
/// See [`Instance::open`].
pub fn open<T: Operator>(slot: &'static LocalKey<Slot<T>>, context: &Context) -> Result<(), String> {
    std::panic::set_hook(Box::new(|panic| crate::log(Level::Error, &panic.to_string())));
    let instance = Instance::open(context)?;
    slot.set(Some(instance));
    Ok(())
}

#[inline]
fn with<T: Operator, R>(
    slot: &'static LocalKey<Slot<T>>,
    f: impl FnOnce(&mut Instance<T>) -> Result<R, String>,
) -> Result<R, String> {
    slot.with_borrow_mut(|instance| match instance {
        Some(instance) => f(instance),
        None => Err("called before open".to_owned()),
    })
}

/// `lifecycle.process`.
///
/// # Errors
/// See [`Instance::process`].
#[inline]
pub fn process<T: Operator>(slot: &'static LocalKey<Slot<T>>, input: u32, rows: &Batch) -> Result<Vec<Rejection>, String> {
    with(slot, |instance| instance.process(input, rows.view()))
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
    with(slot, |instance| instance.save(&mut crate::bindings::portable::weir::operator::state_writer::write))
}

/// `portable.load`.
///
/// # Errors
/// See [`Instance::load`].
pub fn load<T: Operator + Portable>(slot: &'static LocalKey<Slot<T>>, rows: &Batch, written_by: &str) -> Result<(), String> {
    with(slot, |instance| instance.load(rows.view(), written_by))
}
