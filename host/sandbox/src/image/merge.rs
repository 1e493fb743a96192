//! Consecutive captures merged into one.

use super::blocks::{BLOCK_PAGES, Block};
use super::{Content, EncodedImage, Encoder, Image, for_each_page, parse_chain};
use crate::image::ImageError;
use crate::memory::{PAGE_BYTES, PageSet};

/// Merges consecutive captures of one instance (encoded, oldest first) into one with the same effect: as
/// [`Capture::merge_into`](super::Capture::merge_into), where the newest is encoded too.
///
/// # Errors
/// What is wrong with which of them.
pub fn merge(chain: &[&[u8]]) -> Result<Vec<u8>, ImageError> {
    let mut image = EncodedImage::default();
    merge_images(&parse_chain(chain, None)?, &mut image)?;
    Ok(image.to_vec())
}

/// Merges captures that were checked to follow each other.
pub(super) fn merge_images(images: &[Image<'_>], merged: &mut EncodedImage) -> Result<(), ImageError> {
    let newest = images.last().ok_or(ImageError::Empty)?;
    let mut encoder = Encoder::new(merged, &newest.header, &newest.globals, newest.memories.len());
    for (index, memory) in newest.memories.iter().enumerate() {
        let mut blocks: Vec<Block> = Vec::new();
        // Page, and which of those in the blocks it is.
        let mut places: Vec<(u32, u32)> = Vec::new();
        let mut zeros: Vec<u32> = Vec::new();
        for_each_page(images, index, |first, content| {
            match content {
                Content::Zero(count) => zeros.extend(first..first + count),
                Content::Bytes(bytes) => {
                    for (page, content) in (first..).zip(bytes.chunks_exact(PAGE_BYTES)) {
                        if blocks.last().is_none_or(Block::is_full) {
                            blocks.push(Block::for_pages(BLOCK_PAGES));
                        }
                        blocks.iter_mut().last().into_iter().for_each(|block| block.push(content));
                        places.push((page, places.len() as u32));
                    }
                }
            }
            Ok::<(), ImageError>(())
        })?;
        places.sort_unstable();
        zeros.sort_unstable();
        let (pages, zeros): (PageSet, PageSet) = (places.iter().map(|&(page, _)| page).collect(), zeros.into_iter().collect());
        encoder.memory(memory.size, &pages, &zeros);
        let content = |&(_, place): &(u32, u32)| {
            let (block, position) = (place as usize / BLOCK_PAGES, place as usize % BLOCK_PAGES);
            &blocks[block].bytes()[position * PAGE_BYTES..][..PAGE_BYTES]
        };
        encoder.pages(places.iter().map(content));
    }
    encoder.finish();
    Ok(())
}
