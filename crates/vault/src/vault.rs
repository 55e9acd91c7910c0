//! [`Vault`]: the user's folder, opened: its descriptor, its rules and its locks.

use crate::{
    error::{Fallible, VaultError, is_folder, system, too_large},
    etag::EtagHasher,
    locks::Locks,
    path::VaultPath,
    root::{Links, NodeKind, RootDir, read_limited},
    view::{Content, Entry, Listing, MAX_FILE_BYTES, Purpose, Stat, View},
};
use rustix::io::Errno;
use std::{
    io::Read,
    path::{Path, PathBuf},
    sync::LazyLock,
    time::{Duration, SystemTime},
};
use toolyard_protocol::{EntryKind, ErrorCode, Failure};

/// Staged files of a process that died are kept this long for `reconcile`, unless the options say otherwise.
pub const DEFAULT_KEEP_STAGED: Duration = Duration::from_secs(24 * 3600);
/// Every staged file's name begins so; what follows is the process, the call id and a number.
pub(crate) const STAGED_PREFIX: &str = ".toolyard-tmp-";
/// Opening a vault looks at no more entries than this in search of staged files left behind.
const MAX_SWEEP_ENTRIES: usize = 500_000;
/// Chunk size for hashing files that are not held in memory.
const HASH_CHUNK: usize = 128 << 10;

/// How a vault is opened.
#[derive(Debug, Clone)]
pub struct VaultOptions {
    /// Where lock files lie. Every process that works on the vault must name the same folder.
    pub lock_dir: PathBuf,
    /// Whether reads follow symbolic links that stay inside the vault. Writes never follow any.
    pub follow_symlinks: bool,
    /// Resolve paths segment by segment even where `openat2` exists; links are then never followed.
    pub portable_resolution: bool,
    /// After creating a file, wait this long and look whether something else (a template plugin) has rewritten it.
    pub settle: Duration,
    /// At open, staged files of dead processes older than this are removed.
    pub keep_staged: Duration,
}

impl VaultOptions {
    /// The usual choices, with lock files in this folder.
    pub fn new(lock_dir: impl Into<PathBuf>) -> Self {
        Self {
            lock_dir: lock_dir.into(),
            follow_symlinks: false,
            portable_resolution: false,
            settle: Duration::ZERO,
            keep_staged: DEFAULT_KEEP_STAGED,
        }
    }
}

/// A folder of notes that the user owns.
pub struct Vault {
    path: PathBuf,
    pub(crate) dir: RootDir,
    pub(crate) locks: Locks,
    pub(crate) options: VaultOptions,
}

impl Vault {
    /// Opens the folder, makes the lock folder, and removes stale staged files.
    pub fn open(root: &Path, options: VaultOptions) -> Result<Vault, VaultError> {
        let fail = |errno: Errno| VaultError::Root { path: root.to_owned(), source: errno.into() };
        let dir = RootDir::open(root, options.portable_resolution).map_err(fail)?;
        let locks = Locks::open(&options.lock_dir, dir.identity().map_err(fail)?)?;
        let vault = Vault { path: root.to_owned(), dir, locks, options };
        vault.sweep_staged(vault.options.keep_staged);
        Ok(vault)
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.path
    }

    /// Removes staged files of processes that no longer run and that are older than `age`; answers how many.
    /// Call it with zero once every interrupted call has been reconciled; files of running processes, this one included,
    /// are never touched.
    pub fn sweep_staged(&self, age: Duration) -> usize {
        let mut removed = 0;
        let mut seen = 0;
        let mut folders: Vec<Option<VaultPath>> = vec![None];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = self.dir.entries(folder.as_ref(), Links::Refuse) else { continue };
            for entry in entries {
                seen += 1;
                if seen > MAX_SWEEP_ENTRIES {
                    return removed;
                }
                let Ok(path) = VaultPath::child(folder.as_ref(), &entry.name) else { continue };
                if entry.name.starts_with(STAGED_PREFIX) {
                    if self.is_stale(&path, age) && self.remove_tree(&path).is_ok() {
                        removed += 1;
                    }
                } else if entry.kind == NodeKind::Folder && !entry.name.starts_with('.') {
                    folders.push(Some(path));
                }
            }
        }
        if removed > 0 {
            tracing::info!(removed, "removed staged files that an interrupted process left behind");
        }
        removed
    }

    fn is_stale(&self, path: &VaultPath, age: Duration) -> bool {
        let owner = path.name().strip_prefix(STAGED_PREFIX).and_then(|rest| rest.split('-').next());
        let owner_runs = owner.is_some_and(|mark| {
            let pid = mark.split('.').next().and_then(|pid| pid.parse::<u32>().ok());
            pid.is_some_and(|pid| mark_of(pid).as_deref() == Some(mark))
        });
        let Ok(Some(meta)) = self.dir.meta(path, Links::Refuse) else { return false };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_millis());
        let old = i128::from(meta.mtime_ms) + i128::try_from(age.as_millis()).unwrap_or(i128::MAX)
            <= i128::try_from(now).unwrap_or(0);
        !owner_runs && old
    }

    /// Removes a file, a link, or a folder with everything in it.
    pub(crate) fn remove_tree(&self, path: &VaultPath) -> Result<(), Errno> {
        match self.dir.meta(path, Links::Refuse) {
            Ok(None) => Ok(()),
            Ok(Some(meta)) if meta.kind == NodeKind::Folder => {
                for entry in self.dir.entries(Some(path), Links::Refuse)? {
                    let child = VaultPath::child(Some(path), &entry.name).map_err(|_| Errno::INVAL)?;
                    self.remove_tree(&child)?;
                }
                self.dir.remove_folder(path)
            }
            Ok(Some(_)) | Err(Errno::LOOP) => self.dir.remove_file(path),
            Err(other) => Err(other),
        }
    }

    fn links(&self, purpose: Purpose) -> Links {
        match purpose {
            Purpose::Read if self.options.follow_symlinks => Links::FollowInside,
            Purpose::Read | Purpose::Write => Links::Refuse,
        }
    }
}

impl View for Vault {
    fn stat(&self, path: &VaultPath, purpose: Purpose) -> Fallible<Option<Stat>> {
        let meta = self.dir.meta(path, self.links(purpose)).map_err(|e| system("look at", path.as_str(), e))?;
        meta.map(|meta| stat_of(path, &meta)).transpose()
    }

    fn read(&self, path: &VaultPath, purpose: Purpose) -> Fallible<Option<Content>> {
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

    fn list(&self, folder: Option<&VaultPath>, listing: Listing) -> Fallible<Vec<Entry>> {
        let name = folder.map_or("/", VaultPath::as_str);
        let raw = self.dir.entries(folder, self.links(Purpose::Read)).map_err(|e| system("list", name, e))?;
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
            entries.push(Entry { name: entry.name, kind });
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn etag(&self, path: &VaultPath) -> Fallible<Option<String>> {
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

/// Which process this is: its id and when it started (clock ticks since boot), because ids are used again, and a
/// container's first process always has the same.
pub(crate) fn process_mark() -> &'static str {
    static MARK: LazyLock<String> = LazyLock::new(|| {
        let pid = std::process::id();
        mark_of(pid).unwrap_or_else(|| format!("{pid}.0"))
    });
    &MARK
}

fn mark_of(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may hold anything; the start time is the 20th after it.
    let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse::<u64>().ok()?;
    Some(format!("{pid}.{started}"))
}

fn stat_of(path: &VaultPath, meta: &crate::root::Meta) -> Fallible<Stat> {
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
