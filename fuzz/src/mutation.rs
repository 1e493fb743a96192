//! Input that is nearly good. Pure: the same seed gives the same.

/// Numbers that look random, from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) as usize % bound.max(1)
    }
}

const NUMBERS: [&str; 8] = ["0", "1", "4294967295", "18446744073709551615", "9223372036854775807", "-1", "1e300", "4294967296"];

const EDGES: [u64; 8] = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// Longest input that is made.
const BYTES_MAX: usize = 1 << 20;

/// An input with some of its parts changed, repeated, left out, taken from another one, or made a word or another number.
pub(crate) fn mutated(seed: &[u8], other: &[u8], words: &[&str], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        let end = (at + random.below(24)).min(bytes.len());
        match random.below(9) {
            0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = random.below(256) as u8),
            1 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let part = bytes[at..end].to_vec();
                let times = [1, 1, 1, 2, 40][random.below(5)];
                bytes.splice(at..at, part.repeat(times));
            }
            4 => {
                let from = random.below(other.len());
                let part = other[from..(from + random.below(200)).min(other.len())].to_vec();
                bytes.splice(at..end, part);
            }
            5 => {
                let word = if words.is_empty() { "" } else { words[random.below(words.len())] };
                bytes.splice(at..at, word.bytes());
            }
            6 => {
                let from = (at..bytes.len()).find(|at| bytes[*at].is_ascii_digit()).unwrap_or(at);
                let end = (from..bytes.len()).find(|at| !bytes[*at].is_ascii_digit()).unwrap_or(from);
                bytes.splice(from..end, NUMBERS[random.below(NUMBERS.len())].bytes());
            }
            7 => {
                // A number of a binary format.
                let width = [1, 2, 4, 8][random.below(4)];
                let number = EDGES[random.below(EDGES.len())].wrapping_add(random.below(3) as u64).wrapping_sub(1);
                bytes.iter_mut().skip(at).zip(number.to_le_bytes().iter().take(width)).for_each(|(byte, new)| *byte = *new);
            }
            _ => bytes.truncate(at),
        }
        bytes.truncate(BYTES_MAX);
    }
    bytes
}
