//! Snapshots of a project around a command: a Git repository of our own beside the project's. It shares the project's
//! objects (alternates) and begins with a copy of its index, so that unchanged files are neither read nor stored again.
//!
//! Not seen: files that `.gitignore` names, empty folders, other repositories inside the project, and everything outside
//! of it. Permissions are kept as Git keeps them: executable or not.

mod git;
mod prune;

pub use prune::{PrunedSnapshots, SnapshotRetention};

use crate::{
    image::{self, FileState, MAX_FILE_BYTES},
    native::Change,
};
use git::Git;
use std::{
    collections::{BTreeSet, HashMap},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};
use toolyard_engine::Blob;
use toolyard_protocol::canonical;

/// Maximum number of files that a call may change so that it can be undone.
const MAX_CHANGES: usize = 5_000;
/// Bytes of before-images that are kept for one call.
const MAX_KEPT_BYTES: u64 = 128 << 20;

/// What one snapshot may take. If a snapshot exceeds a limit, it is discarded, and its call cannot be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// The longest time.
    pub time: Duration,
    /// New or changed files.
    pub files: usize,
    /// Bytes of new or changed files.
    pub bytes: u64,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self { time: Duration::from_secs(8), files: 20_000, bytes: 512 << 20 }
    }
}

/// The state of a project: the id of a tree in its shadow repository.
pub(crate) type Tree = String;

/// The shadow repositories.
pub(crate) struct Shadows {
    folder: PathBuf,
    limits: SnapshotLimits,
    projects: Mutex<HashMap<PathBuf, Arc<Mutex<Project>>>>,
}

/// The shadow repository of one project.
struct Project {
    git: Git,
    limits: SnapshotLimits,
    /// The tree of the index as it is, once it was written.
    written: Option<Tree>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shadows {
    pub(crate) fn new(folder: PathBuf, limits: SnapshotLimits) -> Self {
        Self { folder, limits, projects: Mutex::new(HashMap::new()) }
    }

    fn project(&self, root: &Path) -> Arc<Mutex<Project>> {
        let mut projects = lock(&self.projects);
        let known = projects.entry(root.to_owned()).or_insert_with(|| {
            let name = canonical::sha256_hex(root.as_os_str().as_encoded_bytes());
            let git = Git::new(self.folder.join(&name[..24]), root.to_owned());
            Arc::new(Mutex::new(Project { git, limits: self.limits, written: None }))
        });
        Arc::clone(known)
    }

    /// Takes a snapshot. The error says why there is none.
    pub(crate) fn take(&self, root: &Path) -> Result<Tree, String> {
        if root.parent().is_none() || std::env::var_os("HOME").is_some_and(|home| root == Path::new(&home)) {
            return Err("the folder is no project: it is a whole home or file system".to_owned());
        }
        let project = self.project(root);
        let mut project = lock(&project);
        let until = Instant::now() + self.limits.time;
        match project.take(until) {
            Ok(tree) => Ok(tree),
            // A project's index can have extensions that a copy does not support.
            Err(_) if project.git.unseed() => {
                project.written = None;
                project.take(until)
            }
            Err(why) => Err(why),
        }
    }

    /// Removes repositories that are not used, or take too much room.
    pub(crate) fn prune(&self, retention: SnapshotRetention) -> io::Result<PrunedSnapshots> {
        let mut pruned = PrunedSnapshots::default();
        // No snapshot is begun meanwhile: a repository that was chosen is not in use, and does not come into use.
        let mut projects = lock(&self.projects);
        for (path, bytes) in prune::chosen(&self.folder, retention, SystemTime::now())? {
            fs::remove_dir_all(&path)?;
            pruned.projects += 1;
            pruned.bytes += bytes;
            projects.retain(|_, project| lock(project).git.dir() != path);
        }
        Ok(pruned)
    }

    /// What changed since a snapshot, with the bytes that were there before.
    pub(crate) fn changes(&self, root: &Path, before: &Tree) -> Result<(Vec<Change>, Vec<Blob>), String> {
        let after = self.take(root)?;
        if after == *before {
            return Ok((Vec::new(), Vec::new()));
        }
        let project = self.project(root);
        let project = lock(&project);
        let until = Instant::now() + self.limits.time;
        let listed =
            project.git.run(&["diff-tree", "-r", "-z", "--no-renames", "--raw", before, &after], &[], until)?;
        let differences = differences(&listed)?;
        if differences.len() > MAX_CHANGES {
            return Err(format!(
                "it changed {} files; {MAX_CHANGES} is the most that is taken back",
                differences.len()
            ));
        }
        let mut contents = project.contents(&differences, until)?;
        let mut blobs = Vec::new();
        let changes = differences.into_iter().map(|difference| {
            let path = root.join(&difference.path);
            let before = difference.before(&mut contents, &mut blobs);
            let (after, _) = image::take(&path);
            Change { path, before, after }
        });
        Ok((changes.collect(), blobs))
    }
}

impl Project {
    fn take(&mut self, until: Instant) -> Result<Tree, String> {
        self.git.create().map_err(|error| format!("the snapshots' folder cannot be used: {error}"))?;
        let listed = self.git.run(&["ls-files", "-z", "-o", "-m", "--exclude-standard"], &[], until)?;
        // A name with a slash at its end is another repository.
        let names: BTreeSet<&[u8]> =
            listed.split(|byte| *byte == 0).filter(|name| !name.is_empty() && !name.ends_with(b"/")).collect();
        if names.is_empty()
            && let Some(tree) = &self.written
        {
            return Ok(tree.clone());
        }
        self.check_size(&names)?;
        self.written = None;
        if !names.is_empty() {
            let mut input = Vec::new();
            for name in &names {
                input.extend_from_slice(name);
                input.push(0);
            }
            self.git.run(&["update-index", "--add", "--remove", "-z", "--stdin"], &input, until)?;
        }
        let tree = self.git.run(&["write-tree"], &[], until)?;
        let tree = String::from_utf8_lossy(&tree).trim().to_owned();
        self.written = Some(tree.clone());
        Ok(tree)
    }

    fn check_size(&self, names: &BTreeSet<&[u8]>) -> Result<(), String> {
        let SnapshotLimits { files, bytes: most, .. } = self.limits;
        if names.len() > files {
            return Err(format!("{} files are new or changed; {files} is the most that is kept", names.len()));
        }
        let mut bytes = 0;
        for name in names {
            let path = self.git.path(name);
            bytes += fs::symlink_metadata(path).map_or(0, |metadata| metadata.len());
        }
        if bytes > most {
            return Err(format!("{} MiB are new or changed; {} is the most that is kept", bytes >> 20, most >> 20));
        }
        Ok(())
    }

    /// The contents of everything that is gone or was replaced, by object id.
    fn contents(&self, differences: &[Difference], until: Instant) -> Result<HashMap<String, Vec<u8>>, String> {
        let wanted: BTreeSet<&str> = differences.iter().filter_map(Difference::old_object).collect();
        let mut contents = HashMap::new();
        if wanted.is_empty() {
            return Ok(contents);
        }
        let input: String = wanted.iter().map(|id| format!("{id}\n")).collect();
        let sizes = self.git.run(&["cat-file", "--batch-check=%(objectsize)"], input.as_bytes(), until)?;
        let total: u64 = String::from_utf8_lossy(&sizes).lines().filter_map(|line| line.parse::<u64>().ok()).sum();
        if total > MAX_KEPT_BYTES {
            return Err(format!("it changed {} MiB; {} is the most that is kept", total >> 20, MAX_KEPT_BYTES >> 20));
        }
        let answer = self.git.run(&["cat-file", "--batch"], input.as_bytes(), until)?;
        let mut rest = answer.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let header = String::from_utf8_lossy(&rest[..end]).into_owned();
            rest = &rest[end + 1..];
            let mut words = header.split(' ');
            let (Some(id), _, Some(size)) = (words.next(), words.next(), words.next()) else { continue };
            let size: usize = size.parse().map_err(|_| "git answered in another form".to_owned())?;
            let Some(bytes) = rest.get(..size) else { return Err("git's answer is cut off".to_owned()) };
            contents.insert(id.to_owned(), bytes.to_vec());
            rest = rest.get(size + 1..).unwrap_or_default();
        }
        Ok(contents)
    }
}

/// One line of `git diff-tree --raw`.
struct Difference {
    path: PathBuf,
    old_mode: String,
    old_id: String,
}

impl Difference {
    fn old_object(&self) -> Option<&str> {
        matches!(self.old_mode.as_str(), "100644" | "100755" | "120000").then_some(self.old_id.as_str())
    }

    fn before(&self, contents: &mut HashMap<String, Vec<u8>>, blobs: &mut Vec<Blob>) -> FileState {
        let unkept = |reason: &str| FileState::Unkept { reason: reason.to_owned() };
        let mode = match self.old_mode.as_str() {
            "000000" => return FileState::Absent,
            "100644" => 0o644,
            "100755" => 0o755,
            "120000" => 0,
            _ => return unkept("it is another repository"),
        };
        let Some(bytes) = contents.get(&self.old_id) else { return unkept("its bytes were not kept") };
        if mode == 0 {
            return match String::from_utf8(bytes.clone()) {
                Ok(target) => FileState::Symlink { target },
                Err(_) => unkept("the link's target is not UTF-8"),
            };
        }
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return unkept("it is too large");
        }
        let blob = Blob::new(bytes.as_slice());
        let sha256 = blob.sha256.clone();
        blobs.push(blob);
        FileState::File { sha256, mode }
    }
}

fn differences(listed: &[u8]) -> Result<Vec<Difference>, String> {
    use std::os::unix::ffi::OsStrExt;
    let mut parts = listed.split(|byte| *byte == 0);
    let mut differences = Vec::new();
    while let Some(header) = parts.next().filter(|header| !header.is_empty()) {
        let header = String::from_utf8_lossy(header);
        let words: Vec<&str> = header.trim_start_matches(':').split(' ').collect();
        let (Some(old_mode), Some(old_id), Some(name)) = (words.first(), words.get(2), parts.next()) else {
            return Err("git listed its changes in another form".to_owned());
        };
        differences.push(Difference {
            path: PathBuf::from(std::ffi::OsStr::from_bytes(name)),
            old_mode: (*old_mode).to_owned(),
            old_id: (*old_id).to_owned(),
        });
    }
    Ok(differences)
}
