//! [`Vault`]: an open vault: the descriptor of its folder, its rules and its locks.

use crate::{
    confine::Filters,
    error::{VaultError, VaultResult, is_folder, system, too_large},
    etag::EtagHasher,
    locks::Locks,
    path::VaultPath,
    root::{Links, Meta, MetadataMode, NodeKind, RootDir, read_limited},
    staging::StagingJournal,
    view::{Content, Entry, Listing, MAX_FILE_BYTES, Purpose, Stat, View},
};
use rustix::io::Errno;
use std::{
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};
use toolyard_protocol::{EntryKind, ErrorCode, Failure};

/// The prefix of every staged file's name; the process, the call id and a number follow.
pub(crate) const STAGED_PREFIX: &str = ".toolyard-tmp-";
/// Chunk size for hashing files that are not held in memory.
const HASH_CHUNK: usize = 128 << 10;

/// How a vault is opened.
#[derive(Debug, Clone)]
pub struct VaultOptions {
    /// The folder of lock files. Every process that works on the vault must use the same folder.
    pub lock_dir: PathBuf,
    /// Whether reads follow symbolic links that stay inside the vault. Writes never follow any.
    pub follow_symlinks: bool,
    /// Resolve paths segment by segment even where `openat2` exists; links are then never followed.
    pub portable_resolution: bool,
    /// After creating a file, wait this long and check whether another program (a template plugin) has rewritten it.
    pub settle: Duration,
}

impl VaultOptions {
    /// The usual choices, with lock files in this folder.
    pub fn new(lock_dir: impl Into<PathBuf>) -> Self {
        Self { lock_dir: lock_dir.into(), follow_symlinks: false, portable_resolution: false, settle: Duration::ZERO }
    }
}

/// An entry of a folder, as a survey sees it.
pub(crate) struct ListedEntry {
    pub(crate) entry: Entry,
    /// The metadata of a file, if it was requested.
    pub(crate) meta: Option<Meta>,
    /// Whether the name is UTF-8, so that a path can lead there.
    pub(crate) is_utf8: bool,
}

/// A folder of notes that the user owns.
pub struct Vault {
    path: PathBuf,
    pub(crate) dir: RootDir,
    pub(crate) locks: Locks,
    pub(crate) options: VaultOptions,
    pub(crate) filters: Filters,
    pub(crate) staging: StagingJournal,
}

impl Vault {
    /// Opens the folder and makes the lock folder.
    pub fn open(root: &Path, options: VaultOptions) -> Result<Vault, VaultError> {
        let fail = |errno: Errno| VaultError::Root { path: root.to_owned(), source: errno.into() };
        let dir = RootDir::open(root, options.portable_resolution).map_err(fail)?;
        let locks = Locks::open(&options.lock_dir, dir.identity().map_err(fail)?)?;
        let staging = StagingJournal::new(locks.folder());
        Ok(Vault { path: root.to_owned(), dir, locks, options, filters: Filters::default(), staging })
    }

    /// The path of the folder.
    pub fn root(&self) -> &Path {
        &self.path
    }

    fn links(&self, purpose: Purpose) -> Links {
        match purpose {
            Purpose::Read if self.options.follow_symlinks => Links::FollowInside,
            Purpose::Read | Purpose::Write => Links::Refuse,
        }
    }
}

impl Vault {
    /// The entries of a folder by name, with the metadata of files if requested. In that case names that are not UTF-8
    /// are listed too, with replacement characters and marked as such, because no path can name them.
    pub(crate) fn listed(
        &self,
        folder: Option<&VaultPath>,
        listing: Listing,
        metas: MetadataMode,
    ) -> VaultResult<Vec<ListedEntry>> {
        let name = folder.map_or("/", VaultPath::as_str);
        let raw =
            self.dir.entries_with(folder, self.links(Purpose::Read), metas).map_err(|e| system("list", name, e))?;
        let mut entries = Vec::with_capacity(raw.len());
        for entry in raw {
            if entry.name.starts_with(STAGED_PREFIX) {
                continue;
            }
            let mut kind = entry.kind;
            if listing == Listing::Visible {
                if entry.name.starts_with('.') || kind == NodeKind::Other {
                    continue;
                }
                if !entry.is_utf8 {
                    if metas == MetadataMode::OfFiles {
                        entries.push(ListedEntry {
                            entry: Entry { name: entry.name, kind },
                            meta: None,
                            is_utf8: false,
                        });
                    }
                    continue;
                }
                if kind == NodeKind::Link {
                    // A link is shown as the file it leads to, where that is allowed; linked folders are not entered,
                    // because a circle of links would never end.
                    let target =
                        VaultPath::child(folder, &entry.name).ok().and_then(|p| self.stat(&p, Purpose::Read).ok()?);
                    match target {
                        Some(stat) if stat.is_file() && self.options.follow_symlinks => kind = NodeKind::File,
                        _ => continue,
                    }
                }
            }
            let is_utf8 = entry.is_utf8;
            entries.push(ListedEntry { entry: Entry { name: entry.name, kind }, meta: entry.meta, is_utf8 });
        }
        entries.sort_unstable_by(|a, b| a.entry.name.cmp(&b.entry.name));
        Ok(entries)
    }
}

impl View for Vault {
    fn stat(&self, path: &VaultPath, purpose: Purpose) -> VaultResult<Option<Stat>> {
        let meta = self.dir.meta(path, self.links(purpose)).map_err(|e| system("look at", path.as_str(), e))?;
        meta.map(|meta| stat_of(path, &meta)).transpose()
    }

    fn read(&self, path: &VaultPath, purpose: Purpose) -> VaultResult<Option<Content>> {
        let fail = |errno| if errno == Errno::ISDIR { is_folder(path) } else { system("read", path.as_str(), errno) };
        let Some((mut file, meta)) = self.dir.open_file(path, self.links(purpose)).map_err(fail)? else {
            return Ok(None);
        };
        if meta.size > MAX_FILE_BYTES {
            return Err(too_large(path, meta.size, MAX_FILE_BYTES));
        }
        match read_limited(&mut file, meta.size, MAX_FILE_BYTES).map_err(fail)? {
            Some(bytes) => Ok(Some(Content { bytes: bytes.into(), stat: stat_of(path, &meta)? })),
            None => Err(too_large(path, meta.size, MAX_FILE_BYTES)),
        }
    }

    fn list(&self, folder: Option<&VaultPath>, listing: Listing) -> VaultResult<Vec<Entry>> {
        let entries = self.listed(folder, listing, MetadataMode::None)?;
        Ok(entries.into_iter().map(|listed| listed.entry).collect())
    }

    fn etag(&self, path: &VaultPath) -> VaultResult<Option<String>> {
        let fail = |errno| if errno == Errno::ISDIR { is_folder(path) } else { system("read", path.as_str(), errno) };
        let Some((mut file, _)) = self.dir.open_file(path, self.links(Purpose::Read)).map_err(fail)? else {
            return Ok(None);
        };
        let mut hasher = EtagHasher::default();
        let mut chunk = vec![0; HASH_CHUNK];
        loop {
            match file.read(&mut chunk) {
                Ok(0) => return Ok(Some(hasher.finish())),
                Ok(n) => hasher.update(&chunk[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(fail(crate::root::errno(e))),
            }
        }
    }
}

fn stat_of(path: &VaultPath, meta: &Meta) -> VaultResult<Stat> {
    let kind = match meta.kind {
        NodeKind::File => EntryKind::File,
        NodeKind::Folder => EntryKind::Folder,
        NodeKind::Link | NodeKind::Other => {
            return Err(Failure::new(ErrorCode::PolicyDenied, format!("{path} is neither a file nor a folder"))
                .detail("path", path.as_str()));
        }
    };
    Ok(Stat {
        kind,
        size: meta.size,
        mtime_ms: meta.mtime_ms,
        btime_ms: meta.btime_ms,
        inode: meta.inode,
        mode: Some(meta.mode),
    })
}
