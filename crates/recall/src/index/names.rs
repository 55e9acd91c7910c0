//! Interns names that many documents share.

use std::collections::HashMap;

/// The number that stands for no name.
pub(super) const NONE: u32 = u32::MAX;

/// Interned names and their numbers.
#[derive(Debug, Default)]
pub(super) struct NameTable {
    numbers: HashMap<Box<str>, u32>,
    names: Vec<Box<str>>,
}

impl NameTable {
    /// The number of a name, which is added if it is new.
    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.numbers.insert(name.into(), number);
        self.names.push(name.into());
        number
    }

    /// The number of a known name.
    pub(super) fn find(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// For each name, whether the predicate holds.
    pub(super) fn which(&self, holds: impl Fn(&str) -> bool) -> Vec<bool> {
        self.names.iter().map(|name| holds(name)).collect()
    }

    /// Number of names.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }
}
