//! Entry point for fuzzing: bytes of whatever origin.

use xxhash_rust::xxh3::xxh3_64;

use super::{Decoder, HEADER_BYTES, decode_all, encode_to_vec};

/// Decodes bytes in two ways and checks that both agree, and that what was accepted is the same when written again:
/// nothing in it contradicts itself. Then the same with a header whose checksum fits, for lies that hide behind it.
///
/// # Panics
/// If they do not.
pub fn frames(bytes: &[u8]) -> String {
    let mut said = check(bytes);
    if let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        let mut sealed = header.to_vec();
        sealed[..5].copy_from_slice(b"WEIR\x02");
        let checksum = xxh3_64(&sealed[..HEADER_BYTES - 8]);
        sealed[HEADER_BYTES - 8..].copy_from_slice(&checksum.to_le_bytes());
        sealed.extend_from_slice(body);
        said = format!("{said}; sealed: {}", check(&sealed));
    }
    said
}

fn check(mut bytes: &[u8]) -> String {
    let whole = decode_all(bytes);
    if let Ok(frames) = &whole {
        let again: Vec<u8> = frames.iter().flat_map(|frame| encode_to_vec(frame).unwrap_or_default()).collect();
        assert_eq!(again, bytes, "written again, the frames differ");
    }
    let said = match &whole {
        Ok(frames) => format!("{} frames", ["no", "some"][usize::from(!frames.is_empty())]),
        Err(error) => error.to_string(),
    };
    let mut decoder = Decoder::new();
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (mut piece, rest) = bytes.split_at(bytes.len().min(7));
        bytes = rest;
        while !piece.is_empty() {
            match decoder.push(&mut piece) {
                Ok(frame) => frames.extend(frame),
                Err(error) => {
                    assert_eq!(whole, Err(error), "in pieces there is another error");
                    return said;
                }
            }
        }
    }
    if decoder.is_between_frames() {
        assert_eq!(whole, Ok(frames), "in pieces there are other frames");
    }
    said
}
