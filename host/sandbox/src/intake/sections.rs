//! WebAssembly binaries as a list of raw sections, which is all that copying most of them needs.

use wasm_encoder::Encode;

use super::IntakeError;

/// Bytes before the first section.
pub(super) const HEADER_BYTES: usize = 8;

/// Section ids of core modules.
pub(super) mod core {
    pub(in super::super) const EXPORT: u8 = 7;
    pub(in super::super) const START: u8 = 8;
    pub(in super::super) const ELEMENT: u8 = 9;
    pub(in super::super) const CODE: u8 = 10;
    pub(in super::super) const DATA: u8 = 11;
    pub(in super::super) const DATA_COUNT: u8 = 12;
}

/// Section ids of components.
pub(super) mod component {
    pub(in super::super) const MODULE: u8 = 1;
    pub(in super::super) const COMPONENT: u8 = 4;
}

/// Section id of custom sections, of both.
pub(super) const CUSTOM: u8 = 0;

/// The sections of `bytes`, a module or component, in order: id and payload.
pub(super) fn sections(bytes: &[u8]) -> Sections<'_> {
    Sections { rest: bytes.get(HEADER_BYTES..).unwrap_or_default() }
}

/// See [`sections`].
pub(super) struct Sections<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Sections<'a> {
    type Item = Result<(u8, &'a [u8]), IntakeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (&id, rest) = self.rest.split_first()?;
        let payload = read_u32(rest).and_then(|(size, rest)| rest.split_at_checked(size as usize));
        let Some((payload, rest)) = payload else {
            self.rest = &[];
            return Some(Err(cut_short()));
        };
        self.rest = rest;
        Some(Ok((id, payload)))
    }
}

/// Appends a section.
pub(super) fn push(out: &mut Vec<u8>, id: u8, payload: &[u8]) {
    out.push(id);
    payload.encode(out);
}

/// An unsigned LEB128 number and what follows it.
pub(super) fn read_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().enumerate().take(5) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((u32::try_from(value).ok()?, &bytes[index + 1..]));
        }
    }
    None
}

/// Name and content of a custom section.
pub(super) fn custom(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let (size, rest) = read_u32(payload)?;
    rest.split_at_checked(size as usize)
}

fn cut_short() -> IntakeError {
    IntakeError::Invalid {
        message: "a section ends after the file".to_string(),
        offset: 0,
        hint: "; the file is cut short: build or copy it again".to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn numbers_are_read_as_they_are_written_and_no_longer() {
        for value in [0, 1, 127, 128, 300, u32::MAX] {
            let mut bytes = Vec::new();
            value.encode(&mut bytes);
            bytes.push(9);
            assert_eq!(read_u32(&bytes), Some((value, &[9u8][..])));
        }
        assert_eq!(read_u32(&[0x80, 0x80]), None);
        assert_eq!(read_u32(&[0xff, 0xff, 0xff, 0xff, 0x7f]), None, "more than 32 bits");
        assert_eq!(read_u32(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x01]), None, "more than 5 bytes");
    }

    #[test]
    fn a_section_longer_than_the_file_is_an_error_and_ends_the_list() {
        let mut bytes = b"\0asm\x01\0\0\0".to_vec();
        push(&mut bytes, 1, &[0]);
        bytes.extend_from_slice(&[3, 200, 0]);
        let found: Vec<_> = sections(&bytes).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].as_ref().unwrap(), &(1, &[0u8][..]));
        assert!(found[1].is_err());
    }
}
