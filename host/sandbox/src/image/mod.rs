//! Images: what an instance knows, as bytes that can be stored.
//!
//! A *template image* holds a template's memories whole; it is stored once per operator. A *capture* holds the pages
//! of one instance that were written since a checkpoint, on top of what came before: the template, then captures in
//! order of their checkpoints. Both hold the values of all mutable globals. Nothing here runs guest code or knows
//! wasmtime.

mod blocks;
mod capture;
mod codec;
mod encoded;
mod error;
mod layers;
mod merge;

pub use capture::Capture;
pub(crate) use capture::CapturedMemory;
pub(crate) use codec::{Encoder, Header, Image, Kind};
pub use encoded::EncodedImage;
pub use error::ImageError;
pub(crate) use layers::{Content, PageTaker, for_each_page, parse_chain, put_pages};
pub use merge::merge;

/// Values of mutable globals: for each accessor, in slot order.
pub(crate) type Globals = Vec<Vec<u64>>;
