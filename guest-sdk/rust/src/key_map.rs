//! A map from row keys to state: short keys (up to 15 bytes) lie in the table itself, so that a lookup touches one cache line and
//! a new key allocates nothing.

use std::fmt;
use std::hash::Hasher;

use hashbrown::HashTable;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::hash::FastHasher;

/// The longest key kept in place.
const INLINE_MAX: usize = 15;

/// An owned key.
#[derive(Clone, PartialEq, Eq)]
enum Key {
    /// At most [`INLINE_MAX`] bytes, then zeros, then the length: equal keys are equal words.
    Inline(u64, u64),
    Heap(Box<[u8]>),
}

/// A borrowed key, ready to be compared.
enum Probe<'a> {
    Inline(u64, u64),
    Long(&'a [u8]),
}

impl<'a> Probe<'a> {
    #[inline]
    fn new(key: &'a [u8]) -> Probe<'a> {
        if let Ok(word) = <[u8; 8]>::try_from(key) {
            return Probe::Inline(u64::from_le_bytes(word), 8 << 56);
        }
        if key.len() > INLINE_MAX {
            return Probe::Long(key);
        }
        let mut bytes = [0; 16];
        bytes[..key.len()].copy_from_slice(key);
        bytes[15] = key.len() as u8;
        let value = u128::from_le_bytes(bytes);
        Probe::Inline(value as u64, (value >> 64) as u64)
    }

    #[inline]
    fn hash(&self) -> u64 {
        let mut hasher = FastHasher::default();
        match self {
            Probe::Inline(low, high) => {
                hasher.write_u64(*low);
                hasher.write_u64(*high);
            }
            Probe::Long(bytes) => hasher.write(bytes),
        }
        hasher.finish()
    }

    #[inline]
    fn is(&self, key: &Key) -> bool {
        match (self, key) {
            (Probe::Inline(low, high), Key::Inline(l, h)) => low == l && high == h,
            (Probe::Long(bytes), Key::Heap(key)) => **bytes == **key,
            _ => false,
        }
    }

    #[inline]
    fn to_key(&self) -> Key {
        match self {
            Probe::Inline(low, high) => Key::Inline(*low, *high),
            Probe::Long(bytes) => Key::Heap(Box::from(*bytes)),
        }
    }
}

impl Key {
    fn hash(&self) -> u64 {
        match self {
            Key::Inline(low, high) => Probe::Inline(*low, *high).hash(),
            Key::Heap(bytes) => Probe::Long(bytes).hash(),
        }
    }

    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Key::Inline(low, high) => {
                let bytes = (u128::from(*low) | u128::from(*high) << 64).to_le_bytes();
                f(&bytes[..usize::from(bytes[15])])
            }
            Key::Heap(bytes) => f(bytes),
        }
    }
}

/// A map from row keys to `V`.
#[derive(Clone)]
pub struct KeyMap<V> {
    table: HashTable<(Key, V)>,
}

impl<V> Default for KeyMap<V> {
    fn default() -> KeyMap<V> {
        KeyMap { table: HashTable::new() }
    }
}

impl<V> KeyMap<V> {
    /// Number of keys.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// What is kept for `key`.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<&V> {
        let probe = Probe::new(key);
        self.table.find(probe.hash(), |(key, _)| probe.is(key)).map(|(_, value)| value)
    }

    /// What is kept for `key`, to be changed.
    #[inline]
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        let probe = Probe::new(key);
        self.table.find_mut(probe.hash(), |(key, _)| probe.is(key)).map(|(_, value)| value)
    }

    /// What is kept for `key`; made by `new` if there is nothing yet.
    #[inline]
    pub fn get_or_insert_with(&mut self, key: &[u8], new: impl FnOnce() -> V) -> &mut V {
        let probe = Probe::new(key);
        let entry = self.table.entry(probe.hash(), |(key, _)| probe.is(key), |(key, _)| key.hash());
        &mut entry.or_insert_with(|| (probe.to_key(), new())).into_mut().1
    }

    /// What is kept for `key`; `V::default()` if there is nothing yet.
    #[inline]
    pub fn or_default(&mut self, key: &[u8]) -> &mut V
    where
        V: Default,
    {
        self.get_or_insert_with(key, V::default)
    }

    /// Keeps `value` for `key`; gives what was kept before.
    pub fn insert(&mut self, key: &[u8], value: V) -> Option<V> {
        let mut value = Some(value);
        let place = self.get_or_insert_with(key, || value.take().expect("called once"));
        value.map(|value| std::mem::replace(place, value))
    }

    /// Forgets `key`; gives what was kept.
    pub fn remove(&mut self, key: &[u8]) -> Option<V> {
        let probe = Probe::new(key);
        let entry = self.table.find_entry(probe.hash(), |(key, _)| probe.is(key)).ok()?;
        Some(entry.remove().0.1)
    }

    /// Calls `f` with each key and what is kept for it, in no particular order that is the same on each run.
    pub fn for_each(&self, mut f: impl FnMut(&[u8], &V)) {
        self.table.iter().for_each(|(key, value)| key.with_bytes(|key| f(key, value)));
    }

    /// Keeps the keys for which `f` says so.
    pub fn retain(&mut self, mut f: impl FnMut(&[u8], &mut V) -> bool) {
        self.table.retain(|(key, value)| key.with_bytes(|key| f(key, value)));
    }

    /// Forgets everything, keeps the room.
    pub fn clear(&mut self) {
        self.table.clear();
    }
}

impl<V: fmt::Debug> fmt::Debug for KeyMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        self.for_each(|key, value| {
            map.entry(&String::from_utf8_lossy(key), value);
        });
        map.finish()
    }
}

/// A byte string as serde's bytes.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

struct OwnedBytes(Vec<u8>);

impl<'de> Deserialize<'de> for OwnedBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OwnedBytes, D::Error> {
        struct BytesVisitor;
        impl Visitor<'_> for BytesVisitor {
            type Value = OwnedBytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a byte string")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<OwnedBytes, E> {
                Ok(OwnedBytes(bytes.to_vec()))
            }
            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<OwnedBytes, E> {
                Ok(OwnedBytes(bytes))
            }
        }
        deserializer.deserialize_byte_buf(BytesVisitor)
    }
}

impl<V: Serialize> Serialize for KeyMap<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (key, value) in &self.table {
            key.with_bytes(|key| map.serialize_entry(&Bytes(key), value))?;
        }
        map.end()
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for KeyMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KeyMap<V>, D::Error> {
        struct MapVisitor<V>(std::marker::PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for MapVisitor<V> {
            type Value = KeyMap<V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map with byte strings as keys")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<KeyMap<V>, A::Error> {
                let mut map = KeyMap::default();
                while let Some((key, value)) = entries.next_entry::<OwnedBytes, V>()? {
                    map.insert(&key.0, value);
                }
                Ok(map)
            }
        }
        deserializer.deserialize_map(MapVisitor(std::marker::PhantomData))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::HashMap;

    /// Keys of all lengths around the bound, with zeros at their ends.
    fn keys() -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = (0..40).flat_map(|length| [vec![0; length], vec![7; length]]).collect();
        keys.dedup();
        keys.extend((0..5_000u32).map(|i| i.to_string().into_bytes()));
        keys
    }

    #[test]
    fn it_behaves_as_the_standard_map_does() {
        let mut map = KeyMap::default();
        let mut reference = HashMap::new();
        for (i, key) in keys().iter().enumerate() {
            assert_eq!(map.insert(key, i), reference.insert(key.clone(), i));
            *map.or_default(key) += 1;
            *reference.entry(key.clone()).or_default() += 1;
        }
        for key in keys().iter().step_by(3) {
            assert_eq!(map.remove(key), reference.remove(key));
        }
        assert_eq!(map.len(), reference.len());
        for key in keys() {
            assert_eq!(map.get(&key), reference.get(&key), "{key:?}");
        }
        map.for_each(|key, value| assert_eq!(reference.remove(key), Some(*value)));
        assert!(reference.is_empty());
    }

    #[test]
    fn it_can_be_saved_and_loaded() {
        let mut map = KeyMap::default();
        for (i, key) in keys().iter().enumerate() {
            map.insert(key, i);
        }
        let mut bytes = Vec::new();
        ciborium::into_writer(&map, &mut bytes).unwrap();
        let loaded: KeyMap<usize> = ciborium::from_reader(bytes.as_slice()).unwrap();
        assert_eq!(loaded.len(), map.len());
        map.for_each(|key, value| assert_eq!(loaded.get(key), Some(value)));
    }
}
