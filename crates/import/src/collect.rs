//! Lists the files of a folder in order, without hidden files, without files ignored by `.gitignore`, and without
//! following symbolic links.

use crate::{
    importer::ImportError,
    importer::Options,
    limits::{Limits, MAX_DEPTH},
};
use globset::{Glob, GlobSet, GlobSetBuilder};
use std::{
    fs::OpenOptions,
    io::Read,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Folders with generated or downloaded content, which are never imported.
const NEVER: [&str; 12] = [
    ".git",
    ".hg",
    ".svn",
    "node_modules",
    "__pycache__",
    ".venv",
    "venv",
    ".tox",
    ".mypy_cache",
    ".pytest_cache",
    ".idea",
    ".vscode",
];

/// A file to import: its path in the source, and its content or location.
#[derive(Debug)]
pub(crate) struct RawFile {
    pub(crate) path: String,
    pub(crate) content: Content,
}

/// Files to import, and skipped files with the reason.
pub(crate) type FileSelection = (Vec<RawFile>, Vec<(String, String)>);

#[derive(Debug)]
pub(crate) enum Content {
    OnDisk(PathBuf),
    InMemory(Vec<u8>),
}

/// The file patterns of the import options.
#[derive(Clone)]
pub(crate) struct FilePatterns {
    include: Option<GlobSet>,
    exclude: Option<GlobSet>,
    ignored: Vec<String>,
}

impl FilePatterns {
    pub(crate) fn new(options: &Options) -> Result<Self, ImportError> {
        Ok(Self {
            include: globs(&options.include)?,
            exclude: globs(&options.exclude)?,
            ignored: options.ignore_dirs.clone(),
        })
    }

    pub(crate) fn takes(&self, path: &str) -> bool {
        let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders);
        !folders.split('/').any(|folder| self.is_ignored(folder))
            && self.include.as_ref().is_none_or(|include| include.is_match(path))
            && !self.exclude.as_ref().is_some_and(|exclude| exclude.is_match(path))
    }

    fn is_ignored(&self, folder: &str) -> bool {
        NEVER.contains(&folder) || self.ignored.iter().any(|ignored| ignored.trim_end_matches('/') == folder)
    }
}

fn globs(patterns: &[String]) -> Result<Option<GlobSet>, ImportError> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let bad =
        |pattern: &str, e: globset::Error| ImportError::Invalid(format!("{pattern:?} is no pattern: {}", e.kind()));
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(|e| bad(pattern, e))?);
        // A pattern without a slash matches the name in any folder.
        if !pattern.contains('/') {
            set.add(Glob::new(&format!("**/{pattern}")).map_err(|e| bad(pattern, e))?);
        }
    }
    set.build().map(Some).map_err(|e| bad("the patterns", e))
}

/// Lists the files of a folder, and the skipped ones with the reason.
pub(crate) fn folder(root: &Path, chosen: &FilePatterns, limits: &Limits) -> Result<FileSelection, ImportError> {
    let mut files = Vec::new();
    let mut skipped = Vec::new();
    let ignored = chosen.ignored.clone();
    let walk = ignore::WalkBuilder::new(root)
        .follow_links(false)
        .require_git(false)
        .git_global(false)
        .parents(false)
        .max_depth(Some(MAX_DEPTH))
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .filter_entry(move |entry| {
            let name = entry.file_name().to_string_lossy();
            entry.depth() == 0
                || !(NEVER.contains(&&*name) || ignored.iter().any(|ignored| ignored.trim_end_matches('/') == name))
        })
        .build();
    for entry in walk {
        let Ok(entry) = entry else { continue };
        let Some(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            continue;
        }
        let relative = entry.path().strip_prefix(root).unwrap_or(entry.path()).to_string_lossy().into_owned();
        if !kind.is_file() {
            skipped.push((relative, "it is a link or no regular file".to_owned()));
        } else if !chosen.takes(&relative) {
            skipped.push((relative, "left out by the options".to_owned()));
        } else if files.len() >= limits.files {
            return Err(ImportError::TooLarge(format!("there are more than {} files", limits.files)));
        } else {
            files.push(RawFile { path: relative, content: Content::OnDisk(entry.into_path()) });
        }
    }
    Ok((files, skipped))
}

/// Reads a file, after checking again that it is a regular file and not too large.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
        .map_err(|e| format!("it cannot be opened: {e}"))?;
    if !file.metadata().is_ok_and(|about| about.is_file()) {
        return Err("it is no regular file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(|e| format!("it cannot be read: {e}"))?;
    if bytes.len() as u64 > most {
        return Err(format!("it is larger than {most} bytes"));
    }
    Ok(bytes)
}
