//! A map from row keys to state: short keys (up to 15 bytes) lie in the table itself, so that a lookup touches one cache line and
//! a new key allocates nothing.

use std::fmt;
use std::hash::Hasher;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::BlobsRef;
use crate::hash::FastHasher;
use crate::memory::{self, NoRoom};

/// The longest key kept in place.
const INLINE_MAX: usize = 15;

/// The top byte of the second word where the key is kept elsewhere.
const LONG: u64 = 0xFF << 56;

/// What an allocation costs beside its bytes, about.
const ALLOCATION_BYTES: usize = 16;

/// From this size on a map does not stay in the processor's nearest cache.
const WARM_BYTES_MIN: usize = 64 << 10;

/// More keys than this would push each other out of the cache again.
const WARM_KEYS_MAX: usize = 1_024;

/// An owned key. Short ones: at most [`INLINE_MAX`] bytes, then zeros, then the length; equal keys are equal words.
/// Long ones: their place among the long keys, then 56 bits of their hash under [`LONG`].
#[derive(Clone, Copy)]
struct Key {
    low: u64,
    high: u64,
}

/// A borrowed key, ready to be compared.
enum Probe<'a> {
    Inline(Key),
    Long { bytes: &'a [u8], hash: u64 },
}

/// The keys that do not fit in the table.
#[derive(Clone, Default)]
struct LongKeys {
    keys: Vec<Box<[u8]>>,
    free: Vec<usize>,
}

impl LongKeys {
    fn add(&mut self, bytes: &[u8]) -> usize {
        match self.free.pop() {
            Some(place) => {
                self.keys[place] = Box::from(bytes);
                place
            }
            None => {
                self.keys.push(Box::from(bytes));
                self.keys.len() - 1
            }
        }
    }

    /// Sees to it that a key can be added without asking for memory beyond what was granted.
    fn make_room(&mut self, probe: &Probe<'_>) -> Result<(), NoRoom> {
        let Probe::Long { bytes, .. } = probe else { return Ok(()) };
        if self.keys.len() == self.keys.capacity() {
            memory::reserve(self.keys.len().max(4) * 2 * size_of::<Box<[u8]>>())?;
            self.keys.try_reserve(1).map_err(|_| NoRoom)?;
        }
        memory::reserve(bytes.len() + ALLOCATION_BYTES)
    }

    fn remove(&mut self, key: Key) {
        if key.is_long() {
            self.keys[key.place()] = Box::default();
            self.free.push(key.place());
        }
    }

    fn get(&self, key: Key) -> &[u8] {
        &self.keys[key.place()]
    }

    #[inline]
    fn hash(&self, key: Key) -> u64 {
        if key.is_long() { hash_bytes(self.get(key)) } else { key.hash() }
    }

    fn with_bytes<R>(&self, key: Key, f: impl FnOnce(&[u8]) -> R) -> R {
        if key.is_long() {
            return f(self.get(key));
        }
        let bytes = (u128::from(key.low) | u128::from(key.high) << 64).to_le_bytes();
        f(&bytes[..usize::from(bytes[15])])
    }
}

impl Key {
    #[inline]
    fn is_long(self) -> bool {
        self.high >= LONG
    }

    fn place(self) -> usize {
        self.low as usize
    }

    #[inline]
    fn hash(self) -> u64 {
        let mut hasher = FastHasher::default();
        hasher.write_u64(self.low);
        hasher.write_u64(self.high);
        hasher.finish()
    }
}

fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hasher = FastHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

impl<'a> Probe<'a> {
    #[inline]
    fn new(key: &'a [u8]) -> Probe<'a> {
        if let Ok(word) = <[u8; 8]>::try_from(key) {
            return Probe::Inline(Key { low: u64::from_le_bytes(word), high: 8 << 56 });
        }
        if key.len() > INLINE_MAX {
            return Probe::Long { bytes: key, hash: hash_bytes(key) };
        }
        let mut bytes = [0; 16];
        bytes[..key.len()].copy_from_slice(key);
        bytes[15] = key.len() as u8;
        let value = u128::from_le_bytes(bytes);
        Probe::Inline(Key { low: value as u64, high: (value >> 64) as u64 })
    }

    #[inline]
    fn hash(&self) -> u64 {
        match self {
            Probe::Inline(key) => key.hash(),
            Probe::Long { hash, .. } => *hash,
        }
    }

    #[inline]
    fn is(&self, key: Key, long: &LongKeys) -> bool {
        match self {
            Probe::Inline(probe) => probe.low == key.low && probe.high == key.high,
            Probe::Long { bytes, hash } => key.high == LONG | hash >> 8 && *long.get(key) == **bytes,
        }
    }

    #[inline]
    fn to_key(&self, long: &mut LongKeys) -> Key {
        match self {
            Probe::Inline(key) => *key,
            Probe::Long { bytes, hash } => Key { low: long.add(bytes) as u64, high: LONG | hash >> 8 },
        }
    }
}

/// A map from row keys to `V`.
#[derive(Clone)]
pub struct KeyMap<V> {
    table: HashTable<(Key, V)>,
    long: LongKeys,
}

impl<V> Default for KeyMap<V> {
    fn default() -> KeyMap<V> {
        KeyMap { table: HashTable::new(), long: LongKeys::default() }
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
        self.table.find(probe.hash(), |(key, _)| probe.is(*key, &self.long)).map(|(_, value)| value)
    }

    /// Looks the keys of a batch up and forgets the answers: a large map waits for memory at each key, and here those waits
    /// overlap, since nothing else is done between them. Does nothing for a small map or a large batch.
    #[inline]
    pub fn warm(&self, keys: BlobsRef<'_>) {
        let bytes = self.table.capacity() * size_of::<(Key, V)>();
        if bytes >= WARM_BYTES_MIN && keys.len() <= WARM_KEYS_MAX {
            let found = keys.iter().filter(|key| self.get(key).is_some()).count();
            std::hint::black_box(found);
        }
    }

    /// What is kept for `key`, to be changed.
    #[inline]
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        let probe = Probe::new(key);
        self.table.find_mut(probe.hash(), |(key, _)| probe.is(*key, &self.long)).map(|(_, value)| value)
    }

    /// What is kept for `key`; made by `new` if there is nothing yet.
    #[inline]
    pub fn get_or_insert_with(&mut self, key: &[u8], new: impl FnOnce() -> V) -> &mut V {
        let key = match Probe::new(key) {
            Probe::Inline(key) => key,
            probe @ Probe::Long { .. } => {
                return self.get_or_insert_long(&probe, new, false).expect("refused only where it was asked for");
            }
        };
        let KeyMap { table, long } = self;
        let is_key = |(other, _): &(Key, V)| other.low == key.low && other.high == key.high;
        match table.entry(key.hash(), is_key, |(key, _)| long.hash(*key)) {
            Entry::Occupied(entry) => &mut entry.into_mut().1,
            Entry::Vacant(entry) => &mut entry.insert((key, new())).into_mut().1,
        }
    }

    /// Kept apart, so that the way of short keys stays short where it is inlined.
    #[inline(never)]
    fn get_or_insert_long(&mut self, probe: &Probe<'_>, new: impl FnOnce() -> V, asks: bool) -> Result<&mut V, NoRoom> {
        let KeyMap { table, long } = self;
        match table.entry(probe.hash(), |(key, _)| probe.is(*key, long), |(key, _)| long.hash(*key)) {
            Entry::Occupied(entry) => Ok(&mut entry.into_mut().1),
            Entry::Vacant(entry) => {
                if asks {
                    long.make_room(probe)?;
                }
                Ok(&mut entry.insert((probe.to_key(long), new())).into_mut().1)
            }
        }
    }

    /// What is kept for `key`; made by `new` if there is nothing yet and there is room for it. Only a new key needs room.
    ///
    /// # Errors
    /// If there is no room: the map is as it was.
    #[inline]
    pub fn try_get_or_insert_with(&mut self, key: &[u8], new: impl FnOnce() -> V) -> Result<&mut V, NoRoom> {
        if self.table.len() == self.table.capacity()
            && let Err(no_room) = self.grow()
            && self.get(key).is_none()
        {
            return Err(no_room);
        }
        match Probe::new(key) {
            Probe::Inline(_) => Ok(self.get_or_insert_with(key, new)),
            probe @ Probe::Long { .. } => self.get_or_insert_long(&probe, new, true),
        }
    }

    /// What is kept for `key`; `V::default()` if there is nothing yet and there is room for it.
    ///
    /// # Errors
    /// If there is no room: the map is as it was.
    #[inline]
    pub fn try_or_default(&mut self, key: &[u8]) -> Result<&mut V, NoRoom>
    where
        V: Default,
    {
        self.try_get_or_insert_with(key, V::default)
    }

    /// Makes the table larger, if there is room for both while one is copied into the other.
    #[cold]
    fn grow(&mut self) -> Result<(), NoRoom> {
        let KeyMap { table, long } = self;
        memory::reserve((table.capacity().max(3) * 2 + 1) * 8 / 7 * (size_of::<(Key, V)>() + 1))?;
        table.try_reserve(1, |(key, _)| long.hash(*key)).map_err(|_| NoRoom)
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
        let entry = self.table.find_entry(probe.hash(), |(key, _)| probe.is(*key, &self.long)).ok()?;
        let ((key, value), _) = entry.remove();
        self.long.remove(key);
        Some(value)
    }

    /// Calls `f` with each key and what is kept for it, in no particular order that is the same on each run.
    pub fn for_each(&self, mut f: impl FnMut(&[u8], &V)) {
        self.table.iter().for_each(|(key, value)| self.long.with_bytes(*key, |key| f(key, value)));
    }

    /// Keeps the keys for which `f` says so.
    pub fn retain(&mut self, mut f: impl FnMut(&[u8], &mut V) -> bool) {
        let KeyMap { table, long } = self;
        table.retain(|(key, value)| {
            let keep = long.with_bytes(*key, |key| f(key, value));
            if !keep {
                long.remove(*key);
            }
            keep
        });
    }

    /// Forgets everything, keeps the room.
    pub fn clear(&mut self) {
        self.table.clear();
        self.long = LongKeys::default();
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
            self.long.with_bytes(*key, |key| map.serialize_entry(&Bytes(key), value))?;
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

    #[test]
    fn warming_changes_nothing() {
        let mut map = super::KeyMap::<u64>::default();
        let mut keys = crate::Blobs::default();
        for n in 0..10_000u64 {
            *map.or_default(&n.to_le_bytes()) = n;
            if n % 100 == 0 {
                keys.push(&n.to_le_bytes());
                keys.push(&(n + 1_000_000).to_le_bytes());
            }
        }
        map.warm(keys.view());
        assert_eq!(map.len(), 10_000);
        assert_eq!(map.get(&77u64.to_le_bytes()), Some(&77));
    }
    #[test]
    fn only_a_new_key_is_refused_where_there_is_no_room() {
        let no_room = || {
            crate::host::imp::with(|stand| stand.room = Some(0));
            memory::forget();
        };
        crate::host::imp::with(|stand| stand.room = None);
        let mut map = KeyMap::default();
        let keys = keys();
        let half = keys.len() / 2;
        keys[..half].iter().for_each(|key| *map.try_or_default(key).unwrap() += 1);
        no_room();
        keys[..half].iter().for_each(|key| *map.try_or_default(key).unwrap() += 1);
        let taken = keys[half..].iter().filter(|key| map.try_or_default(key).is_ok()).count();
        // The table has some room of its own.
        assert!(map.len() == half + taken && taken < half, "{taken}");
        let long = vec![1; 100];
        assert_eq!(map.try_or_default(&long), Err(NoRoom));
        assert_eq!(map.get(&long), None);
        keys[..half].iter().for_each(|key| assert_eq!(map.get(key), Some(&2)));
        crate::host::imp::with(|stand| stand.room = None);
        keys.iter().for_each(|key| *map.try_or_default(key).unwrap() += 1);
        assert_eq!(map.len(), keys.len());
    }

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
        for key in keys().iter().step_by(5) {
            assert_eq!(map.insert(key, 0), reference.insert(key.clone(), 0));
        }
        map.retain(|key, value| key.len() % 4 != 0 || *value == 0);
        reference.retain(|key, value| key.len() % 4 != 0 || *value == 0);
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
