//! The tree as files, in the layout of C2SP tlog-tiles: `checkpoint`, `tile/<level>/<n>` and `tile/entries/<n>`, so that
//! other people's programs can read it. Made on demand from the entries in the store.

use super::{
    entry::{Opened, open},
    heads::SignedHead,
    tree::{Edge, Hash, leaf_hash},
};
use crate::{Store, chain::Verifier, store::StoreError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fs, path::Path};

/// Hashes in a full tile.
const WIDTH: usize = 256;
/// Ledger entries read at a time.
const ENTRIES_PER_PAGE: usize = 256;

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WrittenTiles {
    /// Leaves in the tree.
    pub size: u64,
    /// Files written.
    pub files: u64,
    /// The signed head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<SignedHead>,
}

/// One level's hashes that do not fill a tile yet.
#[derive(Default)]
struct Level {
    full: u64,
    hashes: Vec<Hash>,
}

struct Writer<'a> {
    folder: &'a Path,
    levels: Vec<Level>,
    /// The leaves of the last bundle, each with its length before it.
    bundle: Vec<u8>,
    files: u64,
}

/// Writes the whole tree into a folder. May block.
pub fn write_tiles(store: &dyn Store, verifier: &Verifier, folder: &Path) -> Result<WrittenTiles, StoreError> {
    let mut writer = Writer { folder, levels: vec![Level::default()], bundle: Vec::new(), files: 0 };
    let mut edge = Edge::default();
    let mut head = None;
    let mut seq = 1;
    loop {
        let entries = store.ledger(seq, ENTRIES_PER_PAGE)?;
        let Some(last) = entries.last() else { break };
        seq = last.seq + 1;
        for entry in &entries {
            let Opened::Tree(entry) = open(entry).map_err(|bad| StoreError(bad.to_string()))? else { continue };
            for (text, _) in &entry.leaves {
                let hash = leaf_hash(text.as_bytes());
                edge.push(hash);
                writer.leaf(text.as_bytes(), hash)?;
            }
            head = Some(SignedHead::of(&entry, verifier));
        }
    }
    writer.finish()?;
    if let Some(head) = &head {
        writer.write("checkpoint", head.note.as_bytes())?;
    }
    Ok(WrittenTiles { size: edge.size(), files: writer.files, head })
}

impl Writer<'_> {
    fn leaf(&mut self, text: &[u8], hash: Hash) -> Result<(), StoreError> {
        let length = u16::try_from(text.len()).map_err(|_| StoreError("a leaf is longer than 64 KiB".to_owned()))?;
        self.bundle.extend(length.to_be_bytes());
        self.bundle.extend_from_slice(text);
        if self.levels[0].hashes.len() + 1 == WIDTH {
            let (number, bundle) = (self.levels[0].full, std::mem::take(&mut self.bundle));
            self.write(&format!("tile/entries/{}", place(number)), &bundle)?;
        }
        self.hash(0, hash)
    }

    fn hash(&mut self, level: usize, hash: Hash) -> Result<(), StoreError> {
        if self.levels.len() <= level {
            self.levels.push(Level::default());
        }
        self.levels[level].hashes.push(hash);
        if self.levels[level].hashes.len() < WIDTH {
            return Ok(());
        }
        let number = self.levels[level].full;
        let hashes = std::mem::take(&mut self.levels[level].hashes);
        self.levels[level].full += 1;
        self.write(&format!("tile/{level}/{}", place(number)), &hashes.concat())?;
        let mut edge = Edge::default();
        hashes.into_iter().for_each(|hash| edge.push(hash));
        self.hash(level + 1, edge.root())
    }

    /// Writes what does not fill a tile: `<n>.p/<width>`.
    fn finish(&mut self) -> Result<(), StoreError> {
        let levels = std::mem::take(&mut self.levels);
        for (level, Level { full, hashes }) in levels.iter().enumerate().filter(|(_, level)| !level.hashes.is_empty()) {
            let width = hashes.len();
            self.write(&format!("tile/{level}/{}.p/{width}", place(*full)), &hashes.concat())?;
            if level == 0 {
                let bundle = std::mem::take(&mut self.bundle);
                self.write(&format!("tile/entries/{}.p/{width}", place(*full)), &bundle)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.folder.join(name);
        let failed = |error: std::io::Error| StoreError(format!("{} cannot be written: {error}", path.display()));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        fs::write(&path, bytes).map_err(failed)?;
        self.files += 1;
        Ok(())
    }
}

/// A tile's number as a path: groups of three digits, all but the last with an `x`.
fn place(number: u64) -> String {
    let mut path = format!("{:03}", number % 1000);
    let mut rest = number / 1000;
    while rest > 0 {
        path = format!("x{:03}/{path}", rest % 1000);
        rest /= 1000;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn tile_numbers_are_paths() {
        assert_eq!(place(0), "000");
        assert_eq!(place(999), "999");
        assert_eq!(place(1_234_067), "x001/x234/067");
    }
}
