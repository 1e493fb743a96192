//! Headers of a row: names and bytes beside its value, as the WIT has them. Each is (u32 bytes of the name, u32 bytes of the value, name,
//! value), little-endian, one after the other, and nothing more.

/// Appends a header to those of a row.
///
/// # Panics
/// If name or value exceeds 4 GiB; rows are far smaller.
pub fn push_header(headers: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, value] {
        let len = u32::try_from(part.len()).expect("a header holds less than 4 GiB");
        headers.extend_from_slice(&len.to_le_bytes());
    }
    headers.extend_from_slice(name);
    headers.extend_from_slice(value);
}

/// The (name, value) of a row's headers, in order. What is malformed ends them.
pub fn headers_of(mut headers: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let (name, value, rest) = split_first(headers)?;
        headers = rest;
        Some((name, value))
    })
}

/// Whether bytes are headers and nothing more. What a guest or a peer sent must pass this.
pub fn are_headers(mut headers: &[u8]) -> bool {
    while !headers.is_empty() {
        match split_first(headers) {
            Some((_, _, rest)) => headers = rest,
            None => return false,
        }
    }
    true
}

fn split_first(headers: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (name_len, rest) = headers.split_first_chunk::<4>()?;
    let (value_len, rest) = rest.split_first_chunk::<4>()?;
    let (name, rest) = rest.split_at_checked(u32::from_le_bytes(*name_len) as usize)?;
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value_len) as usize)?;
    Some((name, value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_in_order_and_nothing_else_is_taken_for_one() {
        let pairs: [(&[u8], &[u8]); 4] = [(b"trace", b"abc"), (b"", b""), (b"trace", &[0, 255]), (b"n", b"")];
        let mut headers = Vec::new();
        pairs.iter().for_each(|(name, value)| push_header(&mut headers, name, value));
        assert_eq!(headers_of(&headers).collect::<Vec<_>>(), pairs);
        assert!(are_headers(&headers) && are_headers(b""));
        let whole: Vec<usize> = (0..=headers.len()).filter(|&len| are_headers(&headers[..len])).collect();
        assert_eq!(whole, [0, 16, 24, 39, 48]);
        let huge = [255; 12];
        assert!(!are_headers(&huge) && headers_of(&huge).next().is_none());
    }
}
