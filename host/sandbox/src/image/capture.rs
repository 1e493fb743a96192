//! What was taken from an instance, before it is encoded.

use super::{Encoder, Globals, Header};
use crate::memory::{PAGE_BYTES, PageSet};

/// The state of an instance at one moment, as far as it differs from what earlier images hold. Owns its bytes; the
/// instance goes on meanwhile.
pub struct Capture {
    pub(crate) header: Header,
    pub(crate) globals: Globals,
    pub(crate) memories: Vec<CapturedMemory>,
}

/// The captured pages of one memory.
pub(crate) struct CapturedMemory {
    pub(crate) size: u64,
    pub(crate) pages: PageSet,
    /// Their content, in order.
    pub(crate) bytes: Vec<u8>,
}

impl Capture {
    /// Number of pages held.
    pub fn pages(&self) -> usize {
        self.memories.iter().map(|memory| memory.pages.len()).sum()
    }

    /// Bytes held, before compression.
    pub fn raw_bytes(&self) -> usize {
        self.memories.iter().map(|memory| memory.bytes.len()).sum()
    }

    /// The capture as bytes to store: compressed, zero pages left out, with a checksum. Takes about a millisecond per
    /// few MiB, so off the data path.
    pub fn encode(&self) -> Vec<u8> {
        let mut encoder = Encoder::new(&self.header, &self.globals, self.memories.len());
        for memory in &self.memories {
            encoder.memory(memory.size, memory.pages.iter().zip(memory.bytes.chunks_exact(PAGE_BYTES)));
        }
        encoder.finish()
    }
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Capture(checkpoint {}, {} pages)", self.header.checkpoint, self.pages())
    }
}
