//! A fast hasher with a fixed seed for maps in an operator.
//!
//! The standard one (SipHash) costs several times as much, and its seed would be the same for all instances anyway:
//! they share one image. Keys come from outside, so someone who controls them can make a map slow; an operator that
//! must withstand that takes `std::collections::HashMap`.

use std::hash::{BuildHasherDefault, Hasher};

/// `std::collections::HashMap` with the fast hasher. Made by `HashMap::default()`.
pub type HashMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<FastHasher>>;

/// `std::collections::HashSet` with the fast hasher. Made by `HashSet::default()`.
pub type HashSet<T> = std::collections::HashSet<T, BuildHasherDefault<FastHasher>>;

/// Multiplies and rotates, eight bytes at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct FastHasher {
    state: u64,
}

/// Odd, with bits spread evenly: 2^64 / golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

impl FastHasher {
    #[inline]
    fn add(&mut self, word: u64) {
        self.state = (self.state.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    }
}

impl Hasher for FastHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            // The length marks where the last word ends, so that "a" and "a\0" differ.
            let word = rest.iter().rev().fold(rest.len() as u64, |word, &byte| word << 8 | u64::from(byte));
            self.add(word);
        }
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.add(u64::from(value));
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.add(u64::from(value));
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.add(value as u64);
    }

    /// The low half must be well mixed: a 32-bit guest uses only that, for both the place and the tag of an entry.
    #[inline]
    fn finish(&self) -> u64 {
        let mixed = (self.state ^ self.state >> 32).wrapping_mul(MULTIPLIER);
        mixed ^ mixed >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    #[test]
    fn counted_keys_spread_over_the_low_half() {
        let hasher = BuildHasherDefault::<FastHasher>::default();
        for shift in [0, 8, 32, 52] {
            let mut places = HashSet::default();
            let mut tags = HashSet::default();
            for i in 0..4_096u64 {
                let hash = hasher.hash_one((i << shift).to_le_bytes()) as u32;
                places.insert(hash & 0xFFFF);
                tags.insert(hash >> 25);
            }
            assert!(places.len() > 3_700, "shift {shift}: {} places of 4096 keys in 65536 slots", places.len());
            assert_eq!(tags.len(), 128, "shift {shift}");
        }
    }

    #[test]
    fn lengths_differ() {
        let hasher = BuildHasherDefault::<FastHasher>::default();
        let hash = |bytes: &[u8]| hasher.hash_one(bytes);
        assert_ne!(hash(b"a"), hash(b"a\0"));
        assert_ne!(hash(b"12345678"), hash(b"12345678\0"));
        assert_ne!(hash(b""), hash(b"\0"));
    }
}
