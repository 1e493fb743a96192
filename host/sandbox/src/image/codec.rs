//! The image format, version 2. All numbers are little-endian.
//!
//! ```text
//! "weirimg\0"  u16 version  u8 kind (1 template, 2 capture)  5 bytes 0  u64 length of the whole image
//! 32 bytes digest of the component  u128 template  u64 checkpoint (0 in a template)
//! u32 accessors, each: u32 globals, u64 values
//! u32 memories, each:  u64 size  u32 runs  u32 blocks
//!                      runs:   u32 first page, u32 pages, highest bit set if they are all zero
//!                      blocks: u32 bytes stored
//! the blocks of all memories, one after the other
//! ```
//!
//! There is no checksum in it: whoever stores an image keeps one of its bytes and checks it whenever they are read (decision 0038),
//! so that no byte is hashed twice. What is read here is believed as little as anything from outside: damage that is not noticed
//! before gives an error or other content, never a panic or memory without bound.
//!
//! The pages of a memory's runs that are not zero runs, in order, fill blocks of [`BLOCK_PAGES`] pages, the last of
//! them perhaps shorter. A block is LZ4 (block format), or stored as it is if that is no smaller.

use weir_model::Digest;

use super::blocks::{BLOCK_PAGES, Block};
use super::{EncodedImage, Globals, ImageError};
use crate::memory::{PAGE_BYTES, PageSet, RESERVATION_BYTES};

const MAGIC: &[u8; 8] = b"weirimg\0";
const VERSION: u16 = 2;
const FIXED_BYTES: usize = 24;
const ZERO_RUN: u32 = 1 << 31;

/// What an image is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Template,
    Capture,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Template => "template",
            Kind::Capture => "capture",
        }
    }
}

/// What an image belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) digest: Digest,
    /// Hash of the template's whole content: of the image itself if it is a template.
    pub(crate) template: u128,
    pub(crate) checkpoint: u64,
}

/// Writes an image, memory by memory: first [`memory`](Encoder::memory), then its content, a block at a time.
pub(crate) struct Encoder<'i> {
    image: &'i mut EncodedImage,
}

impl Encoder<'_> {
    pub(crate) fn new<'i>(image: &'i mut EncodedImage, header: &Header, globals: &Globals, memories: usize) -> Encoder<'i> {
        image.clear();
        let head = &mut image.head;
        head.extend_from_slice(MAGIC);
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.push(if header.kind == Kind::Template { 1 } else { 2 });
        head.extend_from_slice(&[0; 5]);
        head.extend_from_slice(&[0; 8]);
        head.extend_from_slice(&header.digest.0);
        head.extend_from_slice(&header.template.to_le_bytes());
        head.extend_from_slice(&header.checkpoint.to_le_bytes());
        put_u32(head, globals.len());
        for values in globals {
            put_u32(head, values.len());
            values.iter().for_each(|value| head.extend_from_slice(&value.to_le_bytes()));
        }
        put_u32(head, memories);
        Encoder { image }
    }

    /// Begins a memory with these pages, and these of zeros. The content of `pages` is to follow.
    pub(crate) fn memory(&mut self, size: u64, pages: &PageSet, zero: &PageSet) {
        let head = &mut self.image.head;
        head.extend_from_slice(&size.to_le_bytes());
        put_u32(head, pages.runs().len() + zero.runs().len());
        put_u32(head, pages.len().div_ceil(BLOCK_PAGES));
        let runs = |set: &PageSet, is_zero: bool| set.runs().iter().map(move |&run| (run, is_zero)).collect::<Vec<_>>();
        let mut runs = [runs(pages, false), runs(zero, true)].concat();
        // In order already but for where one set ends and the other begins, which a stable sort finds out.
        runs.sort_by_key(|(run, _)| run.first);
        for (run, is_zero) in runs {
            head.extend_from_slice(&run.first.to_le_bytes());
            head.extend_from_slice(&(run.count | if is_zero { ZERO_RUN } else { 0 }).to_le_bytes());
        }
    }

    /// Appends the content of the memory's next [`BLOCK_PAGES`] pages, or of those that are left.
    pub(crate) fn block(&mut self, raw: &[u8]) {
        let EncodedImage { head, blocks, blocks_len } = &mut *self.image;
        let room = *blocks_len + lz4_flex::block::get_maximum_output_size(raw.len());
        if blocks.len() < room {
            // Filled with zeros, so seldom: each time there is twice as much.
            blocks.resize(room.max(2 * blocks.len()), 0);
        }
        let out = &mut blocks[*blocks_len..room];
        let length = match lz4_flex::block::compress_into(raw, out) {
            Ok(length) if length < raw.len() => length,
            _ => {
                out[..raw.len()].copy_from_slice(raw);
                raw.len()
            }
        };
        put_u32(head, length);
        *blocks_len += length;
    }

    /// Appends the content of all of a memory's pages, given page by page.
    pub(crate) fn pages<'p>(&mut self, pages: impl Iterator<Item = &'p [u8]>) {
        let mut block = Block::for_pages(BLOCK_PAGES);
        for page in pages {
            block.push(page);
            if block.is_full() {
                self.block(block.bytes());
                block.clear();
            }
        }
        if !block.bytes().is_empty() {
            self.block(block.bytes());
        }
    }

    pub(crate) fn finish(self) {
        let length = (self.image.size_bytes() as u64).to_le_bytes();
        self.image.head[16..24].copy_from_slice(&length);
    }
}

fn put_u32(bytes: &mut Vec<u8>, number: usize) {
    let number = u32::try_from(number).expect("an image counts less than 2^32 of anything");
    bytes.extend_from_slice(&number.to_le_bytes());
}

/// An image that was read, whose structure is sound.
#[derive(Debug)]
pub(crate) struct Image<'a> {
    pub(crate) header: Header,
    pub(crate) globals: Globals,
    pub(crate) memories: Vec<ImageMemory<'a>>,
}

/// One memory in an image.
#[derive(Debug)]
pub(crate) struct ImageMemory<'a> {
    pub(crate) size: u64,
    /// Pages with content.
    pub(crate) pages: PageSet,
    /// Pages of zeros.
    pub(crate) zero: PageSet,
    /// The content of `pages`, [`BLOCK_PAGES`] at a time.
    pub(crate) blocks: Vec<&'a [u8]>,
}

impl<'a> Image<'a> {
    /// Reads an image; `index` is its place in a chain, for messages.
    pub(crate) fn parse(index: usize, bytes: &'a [u8]) -> Result<Image<'a>, ImageError> {
        let kind = check(index, bytes)?;
        let mut reader = Reader { index, rest: &bytes[FIXED_BYTES..] };
        let digest = Digest(reader.array()?);
        let template = u128::from_le_bytes(reader.array()?);
        let header = Header { kind, digest, template, checkpoint: reader.u64()? };
        let globals = (0..reader.count(4)?)
            .map(|_| (0..reader.count(8)?).map(|_| reader.u64()).collect())
            .collect::<Result<Globals, _>>()?;
        let mut memories = Vec::new();
        let mut lengths = Vec::new();
        for _ in 0..reader.count(16)? {
            let (memory, blocks) = reader.memory()?;
            memories.push(memory);
            lengths.push(blocks);
        }
        for (memory, lengths) in memories.iter_mut().zip(lengths) {
            memory.blocks = lengths.iter().map(|&length| reader.take(length as usize)).collect::<Result<_, _>>()?;
        }
        if !reader.rest.is_empty() {
            return Err(reader.malformed("bytes are left over"));
        }
        Ok(Image { header, globals, memories })
    }
}

/// Checks everything that can be checked without looking at the structure.
fn check(index: usize, bytes: &[u8]) -> Result<Kind, ImageError> {
    if !bytes.starts_with(MAGIC) {
        return Err(ImageError::NotAnImage { image: index, start: bytes[..bytes.len().min(8)].to_vec() });
    }
    let Some(fixed) = bytes.first_chunk::<FIXED_BYTES>() else {
        return Err(ImageError::Length { image: index, actual: bytes.len(), expected: FIXED_BYTES as u64 });
    };
    let version = u16::from_le_bytes([fixed[8], fixed[9]]);
    if version != VERSION {
        return Err(ImageError::Version { image: index, version, supported: VERSION });
    }
    let [.., a, b, c, d, e, f, g, h] = *fixed;
    let expected = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    if bytes.len() as u64 != expected {
        return Err(ImageError::Length { image: index, actual: bytes.len(), expected });
    }
    match fixed[10] {
        1 => Ok(Kind::Template),
        2 => Ok(Kind::Capture),
        kind => Err(ImageError::Malformed { image: index, what: format!("its kind is {kind}") }),
    }
}

struct Reader<'a> {
    index: usize,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn malformed(&self, what: impl Into<String>) -> ImageError {
        ImageError::Malformed { image: self.index, what: what.into() }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ImageError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(|| self.malformed("it ends early"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ImageError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(|| self.malformed("it ends early"))?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u32(&mut self) -> Result<u32, ImageError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, ImageError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A number of items that take at least `item_bytes` each; no more than there are bytes left for.
    fn count(&mut self, item_bytes: usize) -> Result<u32, ImageError> {
        let count = self.u32()?;
        if count as usize > self.rest.len() / item_bytes {
            return Err(self.malformed(format!("it counts {count} items in {} bytes", self.rest.len())));
        }
        Ok(count)
    }

    fn memory(&mut self) -> Result<(ImageMemory<'a>, Vec<u32>), ImageError> {
        let size = self.u64()?;
        if size > RESERVATION_BYTES as u64 || !size.is_multiple_of(PAGE_BYTES as u64) {
            return Err(self.malformed(format!("a memory has {size} bytes")));
        }
        let runs = self.u32()?;
        let blocks = self.u32()?;
        if runs as usize * 8 + blocks as usize * 4 > self.rest.len() {
            return Err(self.malformed(format!("a memory has {runs} runs and {blocks} blocks in {} bytes", self.rest.len())));
        }
        let (mut pages, mut zero, mut end) = (PageSet::default(), PageSet::default(), 0);
        for _ in 0..runs {
            let (first, count) = (self.u32()?, self.u32()?);
            let (is_zero_run, count) = (count & ZERO_RUN != 0, count & !ZERO_RUN);
            let run_end = u64::from(first) + u64::from(count);
            if u64::from(first) < end || count == 0 || run_end > size / PAGE_BYTES as u64 {
                return Err(self.malformed(format!("pages {first}..{run_end} of a memory of {size} bytes")));
            }
            end = run_end;
            if is_zero_run { &mut zero } else { &mut pages }.push(first, count);
        }
        if pages.len().div_ceil(BLOCK_PAGES) != blocks as usize {
            return Err(self.malformed(format!("{} pages in {blocks} blocks", pages.len())));
        }
        let lengths = (0..blocks).map(|_| self.u32()).collect::<Result<_, _>>()?;
        Ok((ImageMemory { size, pages, zero, blocks: Vec::new() }, lengths))
    }
}

/// Undoes what the encoder did with a block; `raw` has the length the block had.
pub(crate) fn decompress(index: usize, stored: &[u8], raw: &mut [u8]) -> Result<(), ImageError> {
    if stored.len() == raw.len() {
        raw.copy_from_slice(stored);
        return Ok(());
    }
    match lz4_flex::block::decompress_into(stored, raw) {
        Ok(length) if length == raw.len() => Ok(()),
        Ok(length) => Err(ImageError::Malformed { image: index, what: format!("a block has {length} bytes, not {}", raw.len()) }),
        Err(error) => Err(ImageError::Malformed { image: index, what: format!("a block does not decompress: {error}") }),
    }
}
