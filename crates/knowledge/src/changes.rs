//! [`Changes`]: file system notifications about a vault that are relevant to the index.
//!
//! Nothing is queued. A waiting task learns that something changed, or that events were lost, and then scans the whole
//! vault. Superfluous events are therefore harmless.

use crate::{config::IndexingConfig, scope::Scope};
use notify::{
    Event, EventHandler, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{CreateKind, RemoveKind},
};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::Notify;
use toolyard_vault::VaultPath;

/// The changes since the last call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeEvent {
    /// A note, a folder or the ignore file was created, removed or changed.
    Changed,
    /// The system dropped events, so anything may have changed.
    Lost,
}

/// Watches a vault until it is dropped.
pub(crate) struct Changes {
    signal: Arc<Signal>,
    _watcher: RecommendedWatcher,
}

#[derive(Default)]
struct Signal {
    changed: Notify,
    lost: AtomicBool,
}

impl Changes {
    /// Starts watching.
    pub(crate) fn watch(root: &Path, config: &IndexingConfig) -> notify::Result<Changes> {
        let signal = Arc::new(Signal::default());
        let notified = signal.clone();
        let root = std::path::absolute(root)?;
        let mut filter = EventFilter::new(root.clone(), config.clone());
        let watcher = watcher(&root, move |event: notify::Result<Event>| {
            if let Some(change) = filter.change(event) {
                notified.lost.fetch_or(change == ChangeEvent::Lost, Ordering::AcqRel);
                notified.changed.notify_one();
            }
        })?;
        Ok(Changes { signal, _watcher: watcher })
    }

    /// Waits for changes. Several changes are reported as one.
    pub(crate) async fn next(&self) -> ChangeEvent {
        self.signal.changed.notified().await;
        if self.signal.lost.swap(false, Ordering::AcqRel) { ChangeEvent::Lost } else { ChangeEvent::Changed }
    }
}

/// Symbolic links are not followed, because linked folders are not indexed: a link to `/` would watch the whole disk.
fn watcher(root: &Path, handler: impl EventHandler) -> notify::Result<RecommendedWatcher> {
    let mut watcher = RecommendedWatcher::new(handler, notify::Config::default().with_follow_symlinks(false))?;
    watcher.watch(root, RecursiveMode::Recursive)?;
    Ok(watcher)
}

/// Filters out events that cannot affect the index.
struct EventFilter {
    root: PathBuf,
    ignore_file: PathBuf,
    config: IndexingConfig,
    scope: Scope,
}

impl EventFilter {
    fn new(root: PathBuf, config: IndexingConfig) -> Self {
        let scope = Scope::read(&root, &config);
        Self { ignore_file: root.join(&config.ignore_file), root, config, scope }
    }

    fn change(&mut self, event: notify::Result<Event>) -> Option<ChangeEvent> {
        let event = match event {
            // Read events are ignored. The indexer itself causes them when it reads notes.
            Ok(event) if matches!(event.kind, EventKind::Access(_)) => return None,
            Ok(event) if !event.need_rescan() => event,
            Ok(_) => return Some(self.lost()),
            Err(error) => {
                tracing::warn!(%error, "a part of the vault cannot be watched; it is scanned every knowledge.indexing.rescanSecs");
                return Some(self.lost());
            }
        };
        if event.paths.contains(&self.ignore_file) {
            self.scope = Scope::read(&self.root, &self.config);
            return Some(ChangeEvent::Changed);
        }
        event.paths.iter().any(|path| self.matters(event.kind, path)).then_some(ChangeEvent::Changed)
    }

    /// Reads the ignore file again, because its change may be among the lost events.
    fn lost(&mut self) -> ChangeEvent {
        self.scope = Scope::read(&self.root, &self.config);
        ChangeEvent::Lost
    }

    /// Whether a changed path can be a note or a folder with notes. Hidden folders, in which editors keep their files,
    /// are excluded.
    fn matters(&self, kind: EventKind, path: &Path) -> bool {
        let Ok(relative) = path.strip_prefix(&self.root) else { return false };
        if relative.iter().any(|part| part.as_encoded_bytes().starts_with(b".")) {
            return false;
        }
        // The root itself was created or removed.
        let Some(text) = relative.to_str().filter(|text| !text.is_empty()) else { return true };
        // A name that is not a valid vault path is still listed by a scan, so its change matters.
        let Ok(vault_path) = VaultPath::parse(text) else { return true };
        if self.scope.takes(&vault_path) {
            return true;
        }
        // A folder name may contain a dot, and for a removed path the kind is unknown.
        let may_be_folder = match kind {
            EventKind::Create(CreateKind::File) | EventKind::Remove(RemoveKind::File) => false,
            EventKind::Create(CreateKind::Folder) | EventKind::Remove(RemoveKind::Folder) => true,
            _ => std::fs::symlink_metadata(path).map_or(true, |meta| meta.is_dir()),
        };
        may_be_folder && self.scope.reaches(&vault_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use notify::event::{AccessKind, DataChange, Flag, ModifyKind, RenameMode};
    use std::{sync::mpsc, time::Duration};

    /// A timeout that is longer than any step here takes, even on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);
    const RENAMED: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::From));
    const WRITTEN: EventKind = EventKind::Modify(ModifyKind::Data(DataChange::Any));

    fn filter(dir: &Path) -> EventFilter {
        EventFilter::new(dir.to_owned(), IndexingConfig::default())
    }
    fn event(kind: EventKind, path: PathBuf) -> notify::Result<Event> {
        Ok(Event::new(kind).add_path(path))
    }

    #[test]
    fn folders_with_dots_in_their_names_matter_and_attachments_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut filter = filter(dir.path());
        std::fs::create_dir(dir.path().join("2024.06")).unwrap();
        std::fs::write(dir.path().join("photo.png"), "").unwrap();
        for (kind, path) in [
            (RENAMED, "2024.05"),
            (EventKind::Modify(ModifyKind::Name(RenameMode::To)), "2024.06"),
            (EventKind::Create(CreateKind::Folder), "v1.2"),
            (EventKind::Remove(RemoveKind::Folder), "v1.2"),
            (WRITTEN, "note.md"),
            (EventKind::Remove(RemoveKind::File), "x/note.md"),
            (WRITTEN, ".obsidian-ragignore"),
            (RENAMED, ""),
        ] {
            assert_eq!(
                filter.change(event(kind, dir.path().join(path))),
                Some(ChangeEvent::Changed),
                "{kind:?} {path}"
            );
        }
        for (kind, path) in [
            (WRITTEN, "photo.png"),
            (EventKind::Create(CreateKind::File), "new.png"),
            (EventKind::Remove(RemoveKind::File), "gone.png"),
            (WRITTEN, ".git/index"),
            (RENAMED, ".git/refs"),
            (RENAMED, "a/.hidden/note.md"),
            (RENAMED, "zzz-Archive/x"),
            (EventKind::Access(AccessKind::Any), "note.md"),
            (WRITTEN, "../outside.md"),
        ] {
            assert_eq!(filter.change(event(kind, dir.path().join(path))), None, "{kind:?} {path}");
        }
    }

    #[test]
    fn lost_events_and_a_new_ignore_file_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let mut filter = filter(dir.path());
        let overflow = Event::new(EventKind::Other).set_flag(Flag::Rescan);
        assert_eq!(filter.change(Ok(overflow.clone())), Some(ChangeEvent::Lost));
        assert_eq!(filter.change(Err(notify::Error::new(notify::ErrorKind::MaxFilesWatch))), Some(ChangeEvent::Lost));
        let note = || event(WRITTEN, dir.path().join("Drafts/a.md"));
        let ignore = dir.path().join(".obsidian-ragignore");
        assert_eq!(filter.change(note()), Some(ChangeEvent::Changed));
        std::fs::write(&ignore, "Drafts/\n").unwrap();
        assert_eq!(filter.change(event(WRITTEN, ignore.clone())), Some(ChangeEvent::Changed));
        assert_eq!(filter.change(note()), None);
        std::fs::remove_file(&ignore).unwrap();
        assert_eq!(filter.change(Ok(overflow)), Some(ChangeEvent::Lost));
        assert_eq!(filter.change(note()), Some(ChangeEvent::Changed), "the ignore file was read again");
    }

    /// Any number of events results in one notification, which is kept until it is read.
    #[tokio::test]
    async fn news_is_kept_and_does_not_pile_up() {
        let dir = tempfile::tempdir().unwrap();
        let changes = Changes::watch(dir.path(), &IndexingConfig::default()).unwrap();
        for number in 0..3_000 {
            std::fs::write(dir.path().join(format!("{number}.png")), "x").unwrap();
        }
        std::fs::write(dir.path().join("note.md"), "x").unwrap();
        let change = tokio::time::timeout(PATIENCE, changes.next()).await;
        assert!(change.is_ok(), "the note is one change, whatever came before it");
    }

    #[test]
    fn linked_folders_are_not_watched() {
        let dir = tempfile::tempdir().unwrap();
        let (vault, outside) = (dir.path().join("vault"), dir.path().join("outside"));
        std::fs::create_dir(&vault).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, vault.join("link")).unwrap();
        let (sender, events) = mpsc::channel();
        let _watcher = watcher(&vault, sender).unwrap();
        std::fs::write(outside.join("a.md"), "x").unwrap();
        std::fs::write(vault.join("last.md"), "x").unwrap();
        let mut seen = Vec::new();
        while !seen.contains(&vault.join("last.md")) {
            seen.extend(events.recv_timeout(PATIENCE).unwrap().unwrap().paths);
        }
        assert!(!seen.iter().any(|path| path.starts_with(vault.join("link"))), "{seen:?}");
    }
}
