//! [`PathLocation`]: whether a path is inside the project, belongs to its settings and hooks, or is outside the
//! project.

use std::{
    ffi::OsStr,
    path::{Component, Path, PathBuf},
};

/// Folders and files of a project whose change can switch hooks off or run code later.
const PROTECTED: [&str; 6] = [".git", ".claude", ".codex", ".gemini", ".toolyard", ".mcp.json"];
/// Paths to which anything may be written.
const SINKS: [&str; 4] = ["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"];

/// Where a path is, relative to the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathLocation {
    /// A device that discards what is written to it.
    Sink,
    /// In the project.
    Inside,
    /// In the project, where settings and hooks are.
    Protected,
    /// Outside the project.
    Outside,
    /// In a hidden folder of a home directory, where programs keep keys and tokens.
    Private,
}

/// The project's root: the nearest folder above with a `.git`, else the folder itself.
pub(crate) fn root_of(cwd: &Path) -> PathBuf {
    let root = cwd.ancestors().find(|folder| folder.join(".git").exists());
    root.unwrap_or(cwd).to_owned()
}

/// The path without `.` and `..`, from a folder on. Links are not followed.
pub(crate) fn joined(cwd: &Path, path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in cwd.join(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            part => clean.push(part),
        }
    }
    clean
}

/// Where a clean absolute path leads by its text.
pub(crate) fn location_of(root: &Path, path: &Path) -> PathLocation {
    if SINKS.iter().any(|sink| path == Path::new(sink)) {
        return PathLocation::Sink;
    }
    let is = |part: Component<'_>, names: &[&str]| names.iter().any(|name| part.as_os_str() == OsStr::new(name));
    match path.strip_prefix(root) {
        Ok(rest) if rest.components().any(|part| is(part, &PROTECTED)) => PathLocation::Protected,
        Ok(_) => PathLocation::Inside,
        Err(_) => {
            let mut parts = path.components().skip(1);
            let in_home = parts.next().is_some_and(|part| is(part, &["home", "root", "Users"]));
            let hidden = path.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."));
            if in_home && hidden { PathLocation::Private } else { PathLocation::Outside }
        }
    }
}

/// Where a path really leads: links in the part that exists are followed, so that a link inside the project to a place
/// outside of it counts as outside.
pub(crate) fn real_location(root: &Path, path: &Path) -> PathLocation {
    let by_text = location_of(root, path);
    let real_root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let Some((existing, real)) = path.ancestors().find_map(|some| Some((some, some.canonicalize().ok()?))) else {
        return by_text;
    };
    let rest = path.strip_prefix(existing).unwrap_or(Path::new(""));
    let real = real.join(rest);
    match (by_text, location_of(&real_root, &real)) {
        (PathLocation::Protected, PathLocation::Inside) => PathLocation::Protected,
        (_, place) => place,
    }
}
