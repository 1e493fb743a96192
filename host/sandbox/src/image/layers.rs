//! A chain of captures seen as layers: for every page the newest layer that holds it counts.

use weir_model::Digest;

use super::blocks::BLOCK_PAGES;
use super::codec::{ImageMemory, decompress};
use super::{Image, ImageError, Kind};
use crate::memory::{PAGE_BYTES, Run};

/// What some consecutive pages hold.
pub(crate) enum Content<'a> {
    Bytes(&'a [u8]),
    /// So many pages of zeros.
    Zero(u32),
}

/// Who takes pages.
pub(crate) trait PageTaker<E> {
    /// Room for the content of so many pages from `first` on, to be put there as a whole; none where it is to be given.
    fn room(&mut self, first: u32, pages: u32) -> Option<&mut [u8]>;

    /// What consecutive pages from `first` on hold.
    fn give(&mut self, first: u32, content: Content<'_>) -> Result<(), E>;
}

/// Takes them as they are given.
struct Giver<F>(F);

impl<E, F: FnMut(u32, Content<'_>) -> Result<(), E>> PageTaker<E> for Giver<F> {
    fn room(&mut self, _: u32, _: u32) -> Option<&mut [u8]> {
        None
    }

    fn give(&mut self, first: u32, content: Content<'_>) -> Result<(), E> {
        (self.0)(first, content)
    }
}

/// Reads a chain of captures, oldest first, and checks that they belong together. Gives at least one image.
pub(crate) fn parse_chain<'a>(chain: &[&'a [u8]], expected: Option<(Digest, u128)>) -> Result<Vec<Image<'a>>, ImageError> {
    let mut images: Vec<Image<'a>> = Vec::with_capacity(chain.len() + 1);
    for (index, bytes) in chain.iter().enumerate() {
        let image = Image::parse(index, bytes)?;
        check_belongs(index, &image, expected.unwrap_or((image.header.digest, image.header.template)))?;
        check_next(&images, &image)?;
        images.push(image);
    }
    if images.is_empty() { Err(ImageError::Empty) } else { Ok(images) }
}

/// Refuses an image that does not follow these.
pub(super) fn check_next(images: &[Image<'_>], image: &Image<'_>) -> Result<(), ImageError> {
    let Some(previous) = images.last() else { return Ok(()) };
    check_belongs(images.len(), image, (previous.header.digest, previous.header.template))?;
    follows(images.len(), image, previous)
}

/// Refuses what is no capture of an instance of this component and template.
fn check_belongs(index: usize, image: &Image<'_>, (digest, template): (Digest, u128)) -> Result<(), ImageError> {
    let header = image.header;
    if header.kind != Kind::Capture {
        return Err(ImageError::Kind { image: index, actual: header.kind.name(), expected: Kind::Capture.name() });
    }
    if header.digest != digest {
        return Err(ImageError::WrongComponent { image: index, image_digest: header.digest, component: digest });
    }
    if header.template != template {
        return Err(ImageError::WrongTemplate { image: index, image_template: header.template, template });
    }
    Ok(())
}

fn follows(index: usize, image: &Image<'_>, previous: &Image<'_>) -> Result<(), ImageError> {
    let (checkpoint, before) = (image.header.checkpoint, previous.header.checkpoint);
    if checkpoint <= before {
        return Err(ImageError::Order { image: index, checkpoint, previous: before });
    }
    let shape = |what: String| Err(ImageError::Shape { image: index, what });
    if image.memories.len() != previous.memories.len() {
        return shape(format!("it has {} memories, the one before {}", image.memories.len(), previous.memories.len()));
    }
    if let Some(memory) = (0..image.memories.len()).find(|&memory| image.memories[memory].size < previous.memories[memory].size) {
        return shape(format!("memory {memory} is smaller than in the image before, and memories never shrink"));
    }
    if !image.globals.iter().map(Vec::len).eq(previous.globals.iter().map(Vec::len)) {
        return shape("it has other globals than the image before".to_string());
    }
    Ok(())
}

/// Gives the newest content of every page of one memory that any image of the chain (oldest first) holds, each page
/// once, in no particular order. Blocks with nothing of use are not decompressed.
pub(crate) fn for_each_page<E: From<ImageError>>(
    chain: &[Image<'_>],
    memory: usize,
    give: impl FnMut(u32, Content<'_>) -> Result<(), E>,
) -> Result<(), E> {
    put_pages(chain, memory, Giver(give))
}

/// The same for who may have room: a block of consecutive pages, all of use, is decompressed where they go.
pub(crate) fn put_pages<E: From<ImageError>>(chain: &[Image<'_>], memory: usize, mut taker: impl PageTaker<E>) -> Result<(), E> {
    let newest = chain.last().map_or(0, |image| image.memories[memory].size);
    let mut done = Bitmap::new(newest as usize / PAGE_BYTES);
    let mut raw = Vec::new();
    for (index, image) in chain.iter().enumerate().rev() {
        let memory = &image.memories[memory];
        for &run in memory.zero.runs() {
            for fresh in fresh_runs(&mut done, run.first..run.end()) {
                taker.give(fresh.first, Content::Zero(fresh.count))?;
            }
        }
        for (pages, stored) in blocks(memory) {
            // Positions of pages in the block that no newer image has given.
            let wanted: Vec<Run> = positions(&mut done, &pages);
            if wanted.is_empty() {
                continue;
            }
            if let [run] = wanted[..]
                && run.count as usize == pages.len()
                && let Some(room) = taker.room(pages[0], run.count)
            {
                decompress(index, stored, room)?;
                continue;
            }
            raw.resize(pages.len() * PAGE_BYTES, 0);
            decompress(index, stored, &mut raw)?;
            for run in wanted {
                let bytes = &raw[run.first as usize * PAGE_BYTES..run.end() as usize * PAGE_BYTES];
                taker.give(pages[run.first as usize], Content::Bytes(bytes))?;
            }
        }
    }
    Ok(())
}

/// The blocks of a memory, each with the pages in it.
fn blocks<'m>(memory: &'m ImageMemory<'_>) -> impl Iterator<Item = (Vec<u32>, &'m [u8])> {
    let mut pages = memory.pages.iter();
    memory.blocks.iter().map(move |&stored| (pages.by_ref().take(BLOCK_PAGES).collect(), stored))
}

/// Runs of positions in `pages` whose pages are consecutive and not done yet; marks them done.
fn positions(done: &mut Bitmap, pages: &[u32]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (position, &page) in (0u32..).zip(pages) {
        if done.insert(page) {
            match runs.last_mut() {
                Some(run) if run.end() == position && pages[position as usize - 1] + 1 == page => run.count += 1,
                _ => runs.push(Run { first: position, count: 1 }),
            }
        }
    }
    runs
}

/// Runs of pages of a range that are not done yet; marks them done.
fn fresh_runs(done: &mut Bitmap, pages: std::ops::Range<u32>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for page in pages.filter(|&page| done.insert(page)) {
        match runs.last_mut() {
            Some(run) if run.end() == page => run.count += 1,
            _ => runs.push(Run { first: page, count: 1 }),
        }
    }
    runs
}

struct Bitmap(Vec<u64>);

impl Bitmap {
    fn new(pages: usize) -> Bitmap {
        Bitmap(vec![0; pages.div_ceil(64)])
    }

    /// Whether the page was not there before.
    fn insert(&mut self, page: u32) -> bool {
        let (word, bit) = (page as usize / 64, 1 << (page % 64));
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }
}
