//! Entry points for fuzzing: components that are uploaded, and images that storage holds. Nothing is compiled or run.

use wasmparser::{Validator, WasmFeatures};
use weir_model::Digest;

use crate::image::{EncodedImage, Encoder, Header, ImageError, Kind, for_each_page, merge, parse_chain};
use crate::intake;
use crate::memory::PageSet;

/// Takes a component in. What is accepted is valid once it is instrumented.
///
/// # Panics
/// If it is not.
pub fn component(bytes: &[u8]) -> String {
    let _ = intake::stamp(bytes, "name", "1.0.0");
    match intake::prepare(bytes) {
        Ok(prepared) => {
            for (what, instrumented) in [("init", &prepared.init), ("run", &prepared.run)] {
                let valid = Validator::new_with_features(WasmFeatures::all()).validate_all(instrumented);
                assert!(valid.is_ok(), "{what} is not valid once it is instrumented: {:?}", valid.err());
            }
            format!("taken in, {} accessors", prepared.accessors.len())
        }
        Err(error) => {
            assert!(!matches!(error, intake::IntakeError::Internal { .. }), "{error}");
            error.to_string()
        }
    }
}

/// A chain of images, one after the other: each has its length before it, in four bytes. Also with a head that fits, for lies that
/// hide behind one.
pub fn images(bytes: &[u8]) -> String {
    let mut chain = split(bytes);
    let as_they_are = chain_of(&chain);
    chain.iter_mut().for_each(|image| seal(image));
    format!("{as_they_are}; {}", chain_of(&chain))
}

fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let (part, rest) = rest.split_at(rest.len().min(u32::from_le_bytes(*length) as usize));
        parts.push(part.to_vec());
        bytes = rest;
    }
    parts
}

/// Makes mark, version and length of an image right.
fn seal(image: &mut [u8]) {
    let length = (image.len() as u64).to_le_bytes();
    let Some(head) = image.first_chunk_mut::<24>() else { return };
    head[..8].copy_from_slice(b"weirimg\0");
    head[8..10].copy_from_slice(&2u16.to_le_bytes());
    head[16..].copy_from_slice(&length);
}

fn chain_of(chain: &[Vec<u8>]) -> String {
    let chain: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
    let images = match parse_chain(&chain, None) {
        Ok(images) => images,
        Err(error) => return error.to_string(),
    };
    let mut pages = 0;
    let read = images.first().map_or(0, |image| image.memories.len());
    for memory in 0..read {
        if let Err(error) = for_each_page(&images, memory, |_, _| -> Result<(), ImageError> {
            pages += 1;
            Ok(())
        }) {
            return error.to_string();
        }
    }
    format!("{} images, {pages} pages, merged: {}", images.len(), merge(&chain).is_ok())
}

/// Chains of images to begin with.
pub fn chains() -> Vec<Vec<u8>> {
    let page = vec![7; crate::memory::PAGE_BYTES];
    let image = |kind, checkpoint, pages: &[u32]| {
        let header = Header { kind, digest: Digest([1; 32]), template: 5, checkpoint };
        let mut image = EncodedImage::default();
        let mut encoder = Encoder::new(&mut image, &header, &vec![vec![1, 2]], 1);
        encoder.memory(64 << 10, &pages.iter().copied().collect(), &PageSet::default());
        encoder.pages(pages.iter().map(|_| page.as_slice()));
        encoder.finish();
        image.to_vec()
    };
    let chains = [
        vec![image(Kind::Template, 0, &[0, 1, 2])],
        vec![image(Kind::Capture, 3, &[0, 5])],
        vec![image(Kind::Capture, 3, &[0, 5]), image(Kind::Capture, 4, &[1, 5, 6])],
    ];
    let joined = |chain: &Vec<Vec<u8>>| {
        chain.iter().flat_map(|image| (image.len() as u32).to_le_bytes().into_iter().chain(image.iter().copied())).collect()
    };
    chains.iter().map(joined).collect()
}
