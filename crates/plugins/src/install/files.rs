//! Copies a folder into a package, and measures the size of a package. Only regular files and folders are copied.

use super::{
    MAX_PACKAGE_BYTES, MAX_PACKAGE_FILES,
    names::{self, Names},
};
use std::{
    fs::{File, OpenOptions, Permissions},
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};
use toolyard_beneath::{Folder, Kind, Links, explained};

/// Of no use to a plugin, in any package: a repository's own files, and configuration of npm, which is not obeyed.
const LEFT_OUT: [&str; 2] = [".git", ".npmrc"];
/// Of no use to a plugin that a person develops.
const BUILT: [&str; 2] = ["target", "__pycache__"];

/// The bytes and files that a package may still use.
pub(super) struct Budget {
    bytes: u64,
    entries: u64,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self { bytes: MAX_PACKAGE_BYTES, entries: MAX_PACKAGE_FILES }
    }

    /// Takes one file or folder of this size.
    pub(super) fn take(&mut self, bytes: u64) -> Result<(), String> {
        self.entries =
            self.entries.checked_sub(1).ok_or(format!("it has more than {MAX_PACKAGE_FILES} files and folders"))?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or(format!("it takes more than {MAX_PACKAGE_BYTES} bytes"))?;
        Ok(())
    }
}

/// Whether a name is left out of every package. Links to programs of dependencies are not made, so `.bin` is left out too.
pub(super) fn is_left_out(parent: Option<&str>, name: &str) -> bool {
    LEFT_OUT.contains(&name) || (name == ".bin" && parent == Some("node_modules"))
}

/// Copies a folder. A link to a file in the folder is copied as that file; any other link, a file with a second name (a hard
/// link) and a special file are refused.
pub(super) fn copy(from: &Path, to: &Path, budget: &mut Budget) -> Result<(), String> {
    let root = Folder::open(from).map_err(|e| format!("{}: {}", from.display(), explained(e)))?;
    std::fs::create_dir(to).map_err(|e| e.to_string())?;
    Copying { root: &root, to, budget, names: Names::default() }.below("", &root)
}

struct Copying<'a> {
    root: &'a Folder,
    to: &'a Path,
    budget: &'a mut Budget,
    names: Names,
}

impl Copying<'_> {
    fn below(&mut self, path: &str, folder: &Folder) -> Result<(), String> {
        let mut entries = folder.entries().map_err(|e| format!("{}: {}", names::shown(path), explained(e)))?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in entries {
            let name = entry.name.to_str().ok_or(format!("a name in {path:?} is not UTF-8"))?;
            let parent = path.rsplit('/').next();
            if is_left_out(parent, name) || BUILT.contains(&name) {
                continue;
            }
            let inner = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            self.names.take(&inner)?;
            match entry.kind {
                Kind::Folder => {
                    self.budget.take(0)?;
                    let at = |e| format!("{}: {}", names::shown(&inner), explained(e));
                    let opened = folder.folder(name, Links::Refuse).map_err(at)?;
                    std::fs::create_dir(self.to.join(&inner)).map_err(|e| e.to_string())?;
                    self.below(&inner, &opened)?;
                }
                Kind::File => self.file(&inner, Links::Refuse)?,
                Kind::Link => {
                    self.file(&inner, Links::FollowInside).map_err(|why| format!("a symbolic link: {why}"))?
                }
                Kind::Other => return Err(format!("{} is a device, a pipe or a socket", names::shown(&inner))),
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &str, links: Links) -> Result<(), String> {
        let at = |why: String| format!("{}: {why}", names::shown(path));
        let file = self.root.open_file(path, links).map_err(|e| at(explained(e).to_string()))?;
        let about = file.metadata().map_err(|e| at(e.to_string()))?;
        if about.nlink() > 1 {
            // The other names of a hard link are unknown: it may be any file of the user.
            return Err(at("it is a hard link; copy the folder with `cp -r` first".to_owned()));
        }
        self.budget.take(about.len())?;
        write(&self.to.join(path), file, about.len(), about.mode() & 0o111 != 0).map_err(|e| at(e.to_string()))
    }
}

/// Writes a new file of a known size; more or less is an error. An existing name is never written to.
pub(super) fn write(to: &Path, from: impl Read, size: u64, executable: bool) -> io::Result<()> {
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o644).open(to)?;
    let written = io::copy(&mut from.take(size), &mut out)?;
    if written != size {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is shorter than its size says"));
    }
    if executable { set_executable(&out) } else { Ok(()) }
}

fn set_executable(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(0o755))
}

/// Measures a package whose dependencies npm has written: only files and folders, within the budget.
pub(super) fn survey(package: &Path, budget: &mut Budget) -> Result<(), String> {
    let mut open = vec![package.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|e| e.to_string())? {
            let entry = entry.map_err(|e| e.to_string())?;
            let about = entry.metadata().map_err(|e| e.to_string())?;
            let inner = entry.path();
            let shown = || names::shown(&inner.strip_prefix(package).unwrap_or(&inner).to_string_lossy());
            if about.is_dir() {
                budget.take(0)?;
                open.push(inner);
            } else if about.is_file() {
                budget.take(about.len())?;
            } else {
                return Err(format!("{} is neither a file nor a folder", shown()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn copied(make: impl FnOnce(&Path)) -> Result<tempfile::TempDir, String> {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        std::fs::create_dir(&from).unwrap();
        make(&from);
        copy(&from, &dir.path().join("to"), &mut Budget::new())?;
        Ok(dir)
    }

    #[test]
    fn files_are_copied_and_configuration_of_npm_and_git_is_not() {
        let dir = copied(|from| {
            for folder in [".git/hooks", "node_modules/.bin", "node_modules/a", "lib"] {
                std::fs::create_dir_all(from.join(folder)).unwrap();
            }
            for file in [".git/config", ".npmrc", "lib/.npmrc", "node_modules/.bin/git", "node_modules/a/i.js"] {
                std::fs::write(from.join(file), "x").unwrap();
            }
            std::fs::write(from.join("lib/run"), "#!/bin/sh").unwrap();
            std::fs::set_permissions(from.join("lib/run"), Permissions::from_mode(0o4755)).unwrap();
            symlink("lib/run", from.join("alias")).unwrap();
        })
        .unwrap();
        let to = dir.path().join("to");
        for left_out in [".git", ".npmrc", "lib/.npmrc", "node_modules/.bin"] {
            assert!(!to.join(left_out).exists(), "{left_out}");
        }
        assert!(to.join("node_modules/a/i.js").exists());
        assert_eq!(std::fs::metadata(to.join("lib/run")).unwrap().mode() & 0o7777, 0o755, "no setuid bit");
        assert!(std::fs::symlink_metadata(to.join("alias")).unwrap().is_file(), "a link inside becomes a file");
    }

    #[test]
    fn links_out_hard_links_special_files_and_collisions_are_refused() {
        type Make = fn(&Path);
        let cases: [(&str, Make); 7] = [
            ("symbolic link", |from| symlink("/etc/passwd", from.join("a")).unwrap()),
            ("symbolic link", |from| symlink("../../x", from.join("a")).unwrap()),
            ("symbolic link", |from| symlink("/etc", from.join("a")).unwrap()),
            ("symbolic link", |from| {
                std::fs::create_dir(from.join("d")).unwrap();
                symlink("d", from.join("a")).unwrap();
            }),
            ("hard link", |from| {
                std::fs::write(from.parent().unwrap().join("secret"), "x").unwrap();
                std::fs::hard_link(from.parent().unwrap().join("secret"), from.join("a")).unwrap();
            }),
            ("a pipe", |from| {
                use rustix::fs::{CWD, FileType, Mode, mknodat};
                mknodat(CWD, from.join("a"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
            }),
            ("differ only", |from| {
                std::fs::write(from.join("A"), "1").unwrap();
                std::fs::write(from.join("a"), "2").unwrap();
            }),
        ];
        for (why, make) in cases {
            let error = copied(make).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
    }

    #[test]
    fn a_budget_ends() {
        let mut budget = Budget { bytes: 10, entries: 2 };
        budget.take(10).unwrap();
        assert!(budget.take(1).unwrap_err().contains("bytes"));
        assert!(Budget { bytes: 10, entries: 0 }.take(0).unwrap_err().contains("files"));
    }
}
