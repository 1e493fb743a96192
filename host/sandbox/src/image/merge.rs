//! Consecutive captures merged into one.

use super::{Content, Encoder, for_each_page, parse_chain};
use crate::image::ImageError;
use crate::memory::PAGE_BYTES;

/// Merges consecutive captures of one instance (encoded, oldest first) into one with the same effect: the newest
/// content of every page any of them holds, the globals, sizes and checkpoint of the newest.
///
/// Holds all of these pages in memory while it works.
///
/// # Errors
/// What is wrong with which of them.
pub fn merge(chain: &[&[u8]]) -> Result<Vec<u8>, ImageError> {
    const ZEROS: &[u8; PAGE_BYTES] = &[0; PAGE_BYTES];
    let images = parse_chain(chain, None)?;
    let newest = images.last().ok_or(ImageError::Empty)?;
    let mut encoder = Encoder::new(&newest.header, &newest.globals, newest.memories.len());
    for (index, memory) in newest.memories.iter().enumerate() {
        let mut bytes = Vec::new();
        // Page and where its content starts in `bytes`; none if it is zero.
        let mut pages: Vec<(u32, Option<usize>)> = Vec::new();
        for_each_page(&images, index, |first, content| {
            match content {
                Content::Zero(count) => pages.extend((first..first + count).map(|page| (page, None))),
                Content::Bytes(content) => {
                    let start = bytes.len();
                    bytes.extend_from_slice(content);
                    pages.extend((first..).zip((start..bytes.len()).step_by(PAGE_BYTES).map(Some)));
                }
            }
            Ok::<(), ImageError>(())
        })?;
        pages.sort_unstable_by_key(|&(page, _)| page);
        let content = |start: Option<usize>| start.map_or(&ZEROS[..], |start| &bytes[start..start + PAGE_BYTES]);
        encoder.memory(memory.size, pages.iter().map(|&(page, start)| (page, content(start))));
    }
    Ok(encoder.finish())
}
