//! Workers in this process with real connections between them; the tests are the tasks at both ends.
#![allow(clippy::unwrap_used)]

mod announcements;
mod flow;
mod lifetime;
mod losses;
mod rig;
