//! Names that many documents share, kept once.

use std::collections::HashMap;

/// No name.
pub(super) const NONE: u32 = u32::MAX;

/// Names and their numbers.
#[derive(Debug, Default)]
pub(super) struct Names {
    numbers: HashMap<Box<str>, u32>,
    names: Vec<Box<str>>,
}

impl Names {
    /// The number of a name, new or known.
    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.numbers.insert(name.into(), number);
        self.names.push(name.into());
        number
    }

    /// The number of a name, if it is known.
    pub(super) fn find(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// For each name whether `holds` does.
    pub(super) fn which(&self, holds: impl Fn(&str) -> bool) -> Vec<bool> {
        self.names.iter().map(|name| holds(name)).collect()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }
}
