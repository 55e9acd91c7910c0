//! [`Overlay`]: the vault for a dry run. Changes stay in memory and are visible to later calls; the disk is not
//! changed.

use crate::{
    change::Change,
    error::{VaultResult, is_folder, system},
    etag::etag,
    path::VaultPath,
    root::NodeKind,
    vault::Vault,
    view::{Content, Entry, Listing, Purpose, Stat, TRASH_MIRROR_BIT, View},
};
use rustix::io::Errno;
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};
use toolyard_engine::diff;
use toolyard_protocol::{EntryKind, ErrorCode, Failure};

/// Lines of context in a diff.
const CONTEXT_LINES: usize = 3;
/// A dry run keeps at most this many bytes in memory.
const MAX_OVERLAY_BYTES: usize = 256 << 20;

#[derive(Debug, Clone)]
enum Node {
    /// New content; `origin` is the real file it began as, if any.
    Bytes {
        bytes: Arc<[u8]>,
        origin: Option<VaultPath>,
    },
    /// The content of a real file that was moved here.
    Moved(VaultPath),
    /// A folder that a call made.
    Folder,
    /// A folder that was moved here.
    MovedFolder,
    Gone,
}

pub(crate) struct Overlay {
    base: Arc<Vault>,
    nodes: Mutex<BTreeMap<VaultPath, Node>>,
}

impl Overlay {
    pub(crate) fn new(base: Arc<Vault>) -> Self {
        Self { base, nodes: Mutex::default() }
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<VaultPath, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self, path: &VaultPath) -> Option<Node> {
        self.nodes().get(path).cloned()
    }

    /// Applies changes that a tool has planned on this very overlay.
    pub(crate) fn apply(&self, changes: Vec<Change>) -> VaultResult<()> {
        for change in changes {
            match change {
                Change::MakeFolder(path) => {
                    self.nodes().insert(path, Node::Folder);
                }
                Change::Put { path, content, .. } => {
                    let origin = match self.node(&path) {
                        Some(Node::Bytes { origin, .. }) => origin,
                        Some(Node::Moved(origin)) => Some(origin),
                        Some(Node::Folder | Node::MovedFolder | Node::Gone) => None,
                        None => self.base.stat(&path, Purpose::Write)?.map(|_| path.clone()),
                    };
                    crate::commit::check_size(&path, content.len())?;
                    self.check_room(content.len())?;
                    self.nodes().insert(path, Node::Bytes { bytes: content.into(), origin });
                }
                Change::Move { from, to, kind, .. } => self.move_tree(&from, &to, kind)?,
                Change::Remove { path, kind, .. } => {
                    if kind == EntryKind::Folder {
                        for (child, _) in self.below(&path)? {
                            self.nodes().insert(child, Node::Gone);
                        }
                    }
                    self.nodes().insert(path, Node::Gone);
                }
            }
        }
        Ok(())
    }

    fn check_room(&self, more: usize) -> VaultResult<()> {
        let held: usize =
            self.nodes().values().map(|n| if let Node::Bytes { bytes, .. } = n { bytes.len() } else { 0 }).sum();
        if held + more > MAX_OVERLAY_BYTES {
            return Err(Failure::new(ErrorCode::LimitExceeded, "the dry run holds more than 256 MiB of changed files"));
        }
        Ok(())
    }

    /// Everything below a folder, folders before their content.
    fn below(&self, folder: &VaultPath) -> VaultResult<Vec<(VaultPath, NodeKind)>> {
        let mut out = Vec::new();
        let mut folders = vec![folder.clone()];
        while let Some(folder) = folders.pop() {
            for entry in self.list(Some(&folder), Listing::Everything)? {
                let Ok(path) = VaultPath::child(Some(&folder), &entry.name) else { continue };
                if entry.kind == NodeKind::Folder {
                    folders.push(path.clone());
                }
                out.push((path, entry.kind));
            }
        }
        Ok(out)
    }

    fn move_tree(&self, from: &VaultPath, to: &VaultPath, kind: EntryKind) -> VaultResult<()> {
        let root_kind = if kind == EntryKind::Folder { NodeKind::Folder } else { NodeKind::File };
        let mut moving = vec![(from.clone(), root_kind)];
        if kind == EntryKind::Folder {
            moving.extend(self.below(from)?);
        }
        let mut placed = Vec::new();
        for (path, kind) in moving {
            let node = match (kind, self.node(&path)) {
                (NodeKind::Folder, _) => Node::MovedFolder,
                (_, Some(node)) => node,
                (_, None) => Node::Moved(path.clone()),
            };
            placed.push((path.rebase(from, to)?, node));
            self.nodes().insert(path, Node::Gone);
        }
        self.nodes().extend(placed);
        Ok(())
    }

    /// What changed, as a unified diff in path order. Hidden files (the trash) are left out.
    pub(crate) fn diff(&self) -> String {
        let nodes = self.nodes().clone();
        let mut out = String::new();
        let moved_to: BTreeMap<&VaultPath, &VaultPath> = nodes
            .iter()
            .filter(|(path, _)| !path.is_trash())
            .filter_map(|(path, node)| match node {
                Node::Bytes { origin: Some(origin), .. } | Node::Moved(origin) if origin != path => {
                    Some((origin, path))
                }
                _ => None,
            })
            .collect();
        for (path, node) in nodes.iter().filter(|(path, _)| !path.is_trash()) {
            let base = |path: &VaultPath| self.base.read(path, Purpose::Write).ok().flatten().map(|c| c.bytes);
            match node {
                Node::Folder | Node::MovedFolder if self.base.stat(path, Purpose::Write).is_ok_and(|s| s.is_none()) => {
                    let _ = writeln!(out, "new folder {path}");
                }
                Node::Folder | Node::MovedFolder => {}
                Node::Gone => match self.base.stat(path, Purpose::Write) {
                    Ok(Some(stat)) if !stat.is_file() => {
                        let _ = writeln!(out, "deleted folder {path}");
                    }
                    Ok(Some(_)) if !moved_to.contains_key(path) => {
                        file_diff(&mut out, Some((path, base(path).unwrap_or_default())), None);
                    }
                    _ => {}
                },
                Node::Moved(origin) => {
                    let bytes = base(origin).unwrap_or_default();
                    file_diff(&mut out, Some((origin, bytes.clone())), Some((path, bytes)));
                }
                Node::Bytes { bytes, origin } => {
                    let old = match origin {
                        Some(origin) => Some((origin, base(origin).unwrap_or_default())),
                        None => base(path).map(|bytes| (path, bytes)),
                    };
                    file_diff(&mut out, old, Some((path, bytes.clone())));
                }
            }
        }
        out
    }
}

type Side<'a> = Option<(&'a VaultPath, Arc<[u8]>)>;

fn file_diff(out: &mut String, old: Side<'_>, new: Side<'_>) {
    let (Some(first), Some(second)) = (old.as_ref().or(new.as_ref()), new.as_ref().or(old.as_ref())) else { return };
    let same_bytes = old.as_ref().map(|(_, b)| b) == new.as_ref().map(|(_, b)| b);
    if same_bytes && first.0 == second.0 {
        return;
    }
    let _ = writeln!(out, "diff --git a/{} b/{}", first.0, second.0);
    match (&old, &new) {
        (None, _) => out.push_str("new file\n"),
        (_, None) => out.push_str("deleted file\n"),
        (Some((from, _)), Some((to, _))) if from != to => {
            let _ = writeln!(out, "rename from {from}\nrename to {to}");
        }
        _ => {}
    }
    if same_bytes {
        return;
    }
    let text =
        |side: &Side<'_>| side.as_ref().map_or(Ok(String::new()), |(_, bytes)| String::from_utf8(bytes.to_vec()));
    let (Ok(old_text), Ok(new_text)) = (text(&old), text(&new)) else {
        let _ = writeln!(out, "Binary files differ");
        return;
    };
    let name = |side: &Side<'_>, prefix: &str| {
        side.as_ref().map_or("/dev/null".to_owned(), |(path, _)| format!("{prefix}/{path}"))
    };
    let names = diff::DiffNames { old: &name(&old, "a"), new: &name(&new, "b") };
    out.push_str(&diff::unified(&old_text, &new_text, names, CONTEXT_LINES));
}

impl View for Overlay {
    fn stat(&self, path: &VaultPath, purpose: Purpose) -> VaultResult<Option<Stat>> {
        let made = |kind, size: usize| Stat {
            kind,
            size: size as u64,
            mtime_ms: now_ms(),
            btime_ms: None,
            inode: 0,
            mode: None,
        };
        match self.node(path) {
            Some(Node::Gone) => Ok(None),
            Some(Node::Folder) => {
                let mode = path.is_trash().then_some(TRASH_MIRROR_BIT);
                Ok(Some(Stat { mode, ..made(EntryKind::Folder, 0) }))
            }
            Some(Node::MovedFolder) => Ok(Some(made(EntryKind::Folder, 0))),
            Some(Node::Bytes { bytes, .. }) => Ok(Some(made(EntryKind::File, bytes.len()))),
            Some(Node::Moved(origin)) => self.base.stat(&origin, purpose),
            None => self.base.stat(path, purpose),
        }
    }

    fn read(&self, path: &VaultPath, purpose: Purpose) -> VaultResult<Option<Content>> {
        match self.node(path) {
            Some(Node::Gone) => Ok(None),
            Some(Node::Folder | Node::MovedFolder) => Err(is_folder(path)),
            Some(Node::Bytes { bytes, .. }) => {
                let stat = self.stat(path, purpose)?;
                Ok(stat.map(|stat| Content { bytes, stat }))
            }
            Some(Node::Moved(origin)) => self.base.read(&origin, purpose),
            None => self.base.read(path, purpose),
        }
    }

    fn list(&self, folder: Option<&VaultPath>, listing: Listing) -> VaultResult<Vec<Entry>> {
        let own = folder.and_then(|folder| self.node(folder));
        match own {
            Some(Node::Gone) => return Err(system("list", folder.map_or("/", VaultPath::as_str), Errno::NOENT)),
            Some(Node::Bytes { .. } | Node::Moved(_)) => {
                return Err(system("list", folder.map_or("/", VaultPath::as_str), Errno::NOTDIR));
            }
            Some(Node::Folder | Node::MovedFolder) | None => {}
        }
        let made_here = own.is_some();
        let mut entries: BTreeMap<String, NodeKind> = match self.base.list(folder, listing) {
            Ok(entries) => entries.into_iter().map(|e| (e.name, e.kind)).collect(),
            Err(failure) if made_here && failure.code == ErrorCode::NotFound => BTreeMap::new(),
            Err(failure) => return Err(failure),
        };
        for (path, node) in self.nodes().iter() {
            if path.parent().as_ref() != folder || listing == Listing::Visible && path.name().starts_with('.') {
                continue;
            }
            match node {
                Node::Gone => entries.remove(path.name()),
                Node::Folder | Node::MovedFolder => entries.insert(path.name().to_owned(), NodeKind::Folder),
                Node::Bytes { .. } | Node::Moved(_) => entries.insert(path.name().to_owned(), NodeKind::File),
            };
        }
        Ok(entries.into_iter().map(|(name, kind)| Entry { name, kind }).collect())
    }

    fn etag(&self, path: &VaultPath) -> VaultResult<Option<String>> {
        match self.node(path) {
            Some(Node::Moved(origin)) => self.base.etag(&origin),
            None => self.base.etag(path),
            Some(_) => Ok(self.read(path, Purpose::Read)?.map(|content| etag(&content.bytes))),
        }
    }
}

fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}
