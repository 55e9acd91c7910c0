//! Chooses the child program: the small script child if one built from the same sources is beside this program,
//! otherwise this program itself.
//!
//! Both behave in the same way. The small one starts faster, because the loader has less to relocate.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// A marker in every program that contains the child's code, to check that a file was built from the same sources.
pub(crate) static STAMP: &str = concat!("toolyard-script-stamp:", env!("TOOLYARD_SCRIPT_STAMP"));
/// The file name of the small one.
const COMPANION: &str = "toolyard-script";
/// This program, even if its file was replaced since.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// A file larger than this is not the small one.
const MAX_COMPANION_BYTES: u64 = 256 << 20;

/// The program to start, found once.
pub(crate) fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| companion().unwrap_or_else(|| PathBuf::from(THIS_PROGRAM)))
}

fn companion() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name(COMPANION);
    is_of_these_sources(&path).then_some(path)
}

/// Whether a file holds the stamp. An older one would speak another protocol, or confine itself less.
fn is_of_these_sources(path: &Path) -> bool {
    let fits = std::fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() <= MAX_COMPANION_BYTES);
    fits && std::fs::read(path).is_ok_and(|bytes| memchr::memmem::find(&bytes, STAMP.as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_child_of_the_same_sources_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(COMPANION);
        assert!(!is_of_these_sources(&path), "it is not there");
        assert!(!is_of_these_sources(dir.path()), "a folder");
        std::fs::write(&path, "toolyard-script-stamp:0000000000000000").unwrap();
        assert!(!is_of_these_sources(&path), "built from others");
        std::fs::write(&path, format!("\0\x01{STAMP}\0")).unwrap();
        assert!(is_of_these_sources(&path));
    }
}
