//! What stands in a slot of the table, and in a message.

use std::hash::{DefaultHasher, Hasher as _};

use roxe::verbs::Buffer;

/// Slots of the table.
pub(crate) const SLOTS: usize = 65536;

/// Bytes of a slot.
pub(crate) const SLOT: usize = 64;

/// A checksum, and `key=value` filled up with zeros. A reader sees by the checksum that the entry
/// was changed under its eyes.
pub(crate) struct Entry(pub(crate) [u8; SLOT]);

impl Entry {
    pub(crate) const FREE: Self = Self([0; SLOT]);

    /// Nothing if there is no room for them.
    pub(crate) fn new(key: &str, value: &str) -> Option<Self> {
        let (mut bytes, text) = ([0; SLOT], format!("{key}={value}"));
        bytes.get_mut(8..8 + text.len())?.copy_from_slice(text.as_bytes());
        let sum = hash(&bytes[8..]).to_ne_bytes();
        bytes[..8].copy_from_slice(&sum);
        Some(Self(bytes))
    }

    pub(crate) fn read(memory: &Buffer, place: usize) -> Self {
        let mut bytes = [0; SLOT];
        memory.read(place, &mut bytes);
        Self(bytes)
    }

    pub(crate) fn is_free(&self) -> bool {
        self.0 == [0; SLOT]
    }

    /// Key and value, if it is whole.
    pub(crate) fn open(&self) -> Option<(&str, &str)> {
        let (sum, text) = self.0.split_at(8);
        let text = (sum == hash(text).to_ne_bytes()).then_some(text)?;
        std::str::from_utf8(text).ok()?.trim_end_matches('\0').split_once('=')
    }
}

/// Where in the table a key has its slot.
pub(crate) fn place(key: &str) -> usize {
    hash(key.as_bytes()) as usize % SLOTS * SLOT
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
