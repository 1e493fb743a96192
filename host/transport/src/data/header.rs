//! The first bytes of a channel: which one it is.

use weir_model::Attempt;
use weir_model::limits::NAME_BYTES_MAX;

/// Which channel a stream is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChannelHeader {
    /// The job.
    pub job: Box<str>,
    /// Its execution.
    pub attempt: Attempt,
    /// The channel's number within the execution.
    pub channel: u32,
}

/// `WCHN`, attempt (8), channel (4), length of the job's name (2); numbers are little-endian. Then the name.
pub(crate) const FIXED_BYTES: usize = 18;
const MAGIC: &[u8; 4] = b"WCHN";

pub(crate) fn encode(header: &ChannelHeader) -> Result<Vec<u8>, String> {
    if header.job.is_empty() || header.job.len() > NAME_BYTES_MAX {
        return Err(format!("the name of the job has {} bytes; it must have 1 to {NAME_BYTES_MAX}", header.job.len()));
    }
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&header.attempt.0.to_le_bytes());
    out.extend_from_slice(&header.channel.to_le_bytes());
    out.extend_from_slice(&(header.job.len() as u16).to_le_bytes());
    out.extend_from_slice(header.job.as_bytes());
    Ok(out)
}

/// How long the name after the fixed part is.
pub(crate) fn name_len(fixed: &[u8; FIXED_BYTES]) -> Result<usize, String> {
    if !fixed.starts_with(MAGIC) {
        return Err("the stream does not start as a channel".into());
    }
    let len = usize::from(u16::from_le_bytes([fixed[16], fixed[17]]));
    if len == 0 || len > NAME_BYTES_MAX {
        return Err(format!("the name of the job has {len} bytes; it must have 1 to {NAME_BYTES_MAX}"));
    }
    Ok(len)
}

/// Reads a header, all of it and nothing more.
pub(crate) fn decode(bytes: &[u8]) -> Result<ChannelHeader, String> {
    let (fixed, name) = bytes.split_first_chunk::<FIXED_BYTES>().ok_or("the header of the channel is too short")?;
    if name.len() != name_len(fixed)? {
        return Err("the header of the channel has another length than it says".into());
    }
    let number = |from: usize, len: usize| fixed[from..from + len].iter().rev().fold(0u64, |n, &byte| n << 8 | u64::from(byte));
    Ok(ChannelHeader {
        job: std::str::from_utf8(name).map_err(|_| "the name of the job is not UTF-8")?.into(),
        attempt: Attempt(number(4, 8)),
        channel: number(12, 4) as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_as_it_was_and_nothing_else_is_one() {
        let header = ChannelHeader { job: "größe".into(), attempt: Attempt(u64::MAX - 2), channel: 0x0102_0304 };
        let bytes = encode(&header).unwrap();
        assert_eq!(decode(&bytes), Ok(header.clone()));
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_err());
        }
        assert!(decode(&[bytes.as_slice(), b"x"].concat()).is_err());
        assert!(decode(b"XCHN0123456789012345").is_err());
        assert!(encode(&ChannelHeader { job: "x".repeat(NAME_BYTES_MAX + 1).into(), ..header.clone() }).is_err());
        assert!(encode(&ChannelHeader { job: "".into(), ..header }).is_err());
    }
}
