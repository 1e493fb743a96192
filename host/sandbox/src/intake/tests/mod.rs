//! Intake, driven with hand-written components, with real ones, and with broken ones.

#![allow(clippy::unwrap_used)]

mod broken;
mod handles;
mod instrumented;
mod real;
mod refused;
mod rig;
mod stamped;
