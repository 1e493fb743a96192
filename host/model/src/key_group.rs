//! Key groups: the unit in which keyed state is held, moved and restored.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

/// Index of a key group, `0..key_groups`.
pub type KeyGroup = u16;

/// Hash of a key: `xxh3_64`, that of no bytes for an absent key. Frozen for ever: state is found by it.
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// Key group of a key: [`key_hash`] modulo `key_groups`. Frozen for ever: state is found by it.
#[inline]
pub fn key_group_of(key: &[u8], key_groups: u16) -> KeyGroup {
    (key_hash(key) % u64::from(key_groups)) as KeyGroup
}

/// The subtask that owns a key group: contiguous ranges, as even as whole numbers allow.
#[inline]
pub fn subtask_of(group: KeyGroup, key_groups: u16, parallelism: u32) -> u32 {
    (u64::from(group) * u64::from(parallelism) / u64::from(key_groups)) as u32
}

/// The key groups that one subtask owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyGroupRange {
    /// First owned group.
    pub start: KeyGroup,
    /// One past the last owned group.
    pub end: KeyGroup,
}

impl fmt::Display for KeyGroupRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end.checked_sub(1).filter(|last| *last >= self.start) {
            Some(last) => write!(f, "key groups {} to {last}", self.start),
            None => f.write_str("no key group"),
        }
    }
}

impl KeyGroupRange {
    /// Range of subtask `index` of `parallelism`. Empty where there are more subtasks than groups.
    pub fn of(index: u32, key_groups: u16, parallelism: u32) -> KeyGroupRange {
        let bound = |i: u32| (u64::from(i) * u64::from(key_groups)).div_ceil(u64::from(parallelism)) as KeyGroup;
        KeyGroupRange { start: bound(index), end: bound(index + 1) }
    }

    /// Whether the range holds `group`.
    pub fn contains(&self, group: KeyGroup) -> bool {
        (self.start..self.end).contains(&group)
    }

    /// The groups that both ranges hold; `None` where there is none.
    pub fn intersection(&self, other: KeyGroupRange) -> Option<KeyGroupRange> {
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        (start < end).then_some(KeyGroupRange { start, end })
    }

    /// Number of groups in the range.
    pub fn len(&self) -> usize {
        usize::from(self.end - self.start)
    }

    /// Whether the range holds no group.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_group_of_a_key_never_changes() {
        assert_eq!(key_group_of(b"", 128), (0x2d06_8005_38d3_94c2_u64 % 128) as u16);
        assert_eq!(key_group_of(b"weir", 32_768), (xxh3_64(b"weir") % 32_768) as u16);
    }

    #[test]
    fn ranges_intersect_where_both_hold_a_group() {
        let range = |start, end| KeyGroupRange { start, end };
        assert_eq!(range(0, 5).intersection(range(3, 9)), Some(range(3, 5)));
        assert_eq!(range(0, 5).intersection(range(5, 9)), None);
        assert_eq!(range(2, 2).intersection(range(0, 9)), None);
    }

    #[test]
    fn every_group_belongs_to_exactly_one_subtask() {
        for (groups, parallelism) in [(128, 1), (128, 2), (128, 3), (7, 7), (5, 8), (32_768, 1_000)] {
            let mut owned = 0;
            for index in 0..parallelism {
                let range = KeyGroupRange::of(index, groups, parallelism);
                owned += range.len();
                for group in range.start..range.end {
                    assert_eq!(subtask_of(group, groups, parallelism), index, "group {group} of {groups}/{parallelism}");
                }
            }
            assert_eq!(owned, usize::from(groups));
        }
    }
}
