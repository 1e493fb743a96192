//! What was taken from an instance, before it is encoded.

use super::blocks::{BLOCK_PAGES, Block};
use super::codec::ImageMemory;
use super::layers::check_next;
use super::merge::merge_images;
use super::{EncodedImage, Encoder, Globals, Header, Image, ImageError, parse_chain};
use crate::memory::{PAGE_BYTES, PageSet, is_zero};

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
    /// Pages with content.
    pub(crate) pages: PageSet,
    /// Pages of zeros.
    pub(crate) zero: PageSet,
    /// The content of `pages`, in order; all but the last are full.
    pub(crate) blocks: Vec<Block>,
}

impl CapturedMemory {
    /// Copies the written pages of a memory.
    pub(crate) fn of(memory: &[u8], written: &PageSet) -> CapturedMemory {
        let (mut pages, mut zero) = (PageSet::default(), PageSet::default());
        let mut blocks: Vec<Block> = Vec::with_capacity(written.len().div_ceil(BLOCK_PAGES));
        let mut left = written.len();
        for page in written.iter() {
            let content = &memory[page as usize * PAGE_BYTES..][..PAGE_BYTES];
            if is_zero(content) {
                zero.push(page, 1);
            } else {
                pages.push(page, 1);
                match blocks.last_mut().filter(|block| !block.is_full()) {
                    Some(block) => block.push(content),
                    None => {
                        let mut block = Block::for_pages(left);
                        block.push(content);
                        blocks.push(block);
                    }
                }
            }
            left -= 1;
        }
        CapturedMemory { size: memory.len() as u64, pages, zero, blocks }
    }
}

impl Capture {
    /// Number of pages that it says something of.
    pub fn pages(&self) -> usize {
        self.memories.iter().map(|memory| memory.pages.len() + memory.zero.len()).sum()
    }

    /// Bytes held, before compression.
    pub fn raw_bytes(&self) -> usize {
        self.memories.iter().map(|memory| memory.pages.len() * PAGE_BYTES).sum()
    }

    /// Writes the capture as bytes to store. Its memory is given back piece by piece. Takes about a millisecond per few
    /// MiB, so off the data path.
    pub fn encode_into(self, image: &mut EncodedImage) {
        let mut encoder = Encoder::new(image, &self.header, &self.globals, self.memories.len());
        for memory in self.memories {
            encoder.memory(memory.size, &memory.pages, &memory.zero);
            memory.blocks.into_iter().for_each(|block| encoder.block(block.bytes()));
        }
        encoder.finish();
    }

    /// The capture as bytes to store: see [`Capture::encode_into`].
    pub fn encode(self) -> Vec<u8> {
        let mut image = EncodedImage::default();
        self.encode_into(&mut image);
        image.to_vec()
    }

    /// Writes the capture, merged with those it follows (encoded, oldest first), as one image with the same effect: the
    /// newest content of every page any of them holds, its own globals, sizes and checkpoint.
    ///
    /// Holds all of these pages in memory while it works.
    ///
    /// # Errors
    /// What is wrong with which of them; the capture counts as the last.
    pub fn merge_into(self, older: &[&[u8]], image: &mut EncodedImage) -> Result<(), ImageError> {
        let mut images = parse_chain(older, None)?;
        let newest = self.image();
        check_next(&images, &newest)?;
        images.push(newest);
        merge_images(&images, image)
    }

    /// Itself as an image whose blocks are stored as they are.
    fn image(&self) -> Image<'_> {
        let memory = |memory: &CapturedMemory| ImageMemory {
            size: memory.size,
            pages: memory.pages.clone(),
            zero: memory.zero.clone(),
            blocks: Vec::new(),
        };
        let mut memories: Vec<ImageMemory<'_>> = self.memories.iter().map(memory).collect();
        for (image, memory) in memories.iter_mut().zip(&self.memories) {
            image.blocks.extend(memory.blocks.iter().map(Block::bytes));
        }
        Image { header: self.header, globals: self.globals.clone(), memories }
    }
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Capture(checkpoint {}, {} pages)", self.header.checkpoint, self.pages())
    }
}
