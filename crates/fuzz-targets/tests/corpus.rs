//! Every fuzz target over its seeds, and over pseudo-random changes of them. The changes are the same in every run.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{fs, path::PathBuf};
use toolyard_fuzz_targets::{TARGETS, Target};

/// Changes of each seed.
const CHANGES: usize = 400;
/// Bytes that mean something to one parser or another.
const SPICE: &[u8] = b"{}[]\",:/\\.\0\n\r -=;%#^@~0\xff\x80\x81\x88PK";

fn corpus(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let mut seeds: Vec<(String, Vec<u8>)> = fs::read_dir(corpus(target))
        .unwrap_or_else(|error| panic!("{target} has no corpus: {error}"))
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap())
        })
        .collect();
    seeds.sort();
    seeds
}

/// A linear congruential generator: enough to change bytes, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 24
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

fn change(random: &mut Random, seed: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        match random.below(6) {
            0 if at < bytes.len() => bytes[at] = random.next() as u8,
            1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => bytes.insert(at, SPICE[random.below(SPICE.len())]),
            4 => bytes.truncate(at),
            _ => {
                let from = random.below(other.len());
                let piece = &other[from..(from + random.below(32)).min(other.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
        }
    }
    bytes
}

#[test]
fn every_seed_and_its_changes_hold_the_promises() {
    for (name, target) in TARGETS {
        run(name, *target);
    }
}

fn run(name: &str, target: Target) {
    let seeds = seeds(name);
    let accepted = seeds.iter().filter(|(_, bytes)| target(bytes)).count();
    assert!(accepted >= 3, "{name}: {accepted} seeds reach the code behind the parser");
    assert!(accepted < seeds.len(), "{name}: a seed that is refused belongs to the corpus as well");
    let mut random = Random(7);
    for (_, seed) in &seeds {
        for _ in 0..CHANGES {
            let other = &seeds[random.below(seeds.len())].1;
            target(&change(&mut random, seed, other));
        }
    }
}

#[test]
fn every_target_has_a_program_and_every_corpus_a_target() {
    let fuzz = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for (name, _) in TARGETS {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is not in fuzz/Cargo.toml");
        let program = fs::read_to_string(fuzz.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(
            program.contains(&format!("toolyard_fuzz_targets::{name}(")),
            "{name}: the program runs another target"
        );
    }
    for folder in fs::read_dir(fuzz.join("corpus")).unwrap() {
        let folder = folder.unwrap().file_name().to_string_lossy().into_owned();
        assert!(TARGETS.iter().any(|(name, _)| *name == folder), "fuzz/corpus/{folder} belongs to no target");
    }
}
