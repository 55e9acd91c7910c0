//! Turns sources into readable files, through the import crate.

use crate::error::{ApiError, Code, Result};
use std::path::{Path, PathBuf};

/// Where something is read from.
pub(crate) enum Source {
    Upload { path: PathBuf, name: String },
    Local(PathBuf),
    Remote(String),
}

/// What is read of it.
pub(crate) struct Wanted<'a> {
    pub(crate) include: &'a [String],
    pub(crate) exclude: &'a [String],
    pub(crate) ignore: &'a [String],
    pub(crate) hosts: &'a [String],
}

/// What came of it.
#[derive(Default)]
pub(crate) struct Parsed {
    pub(crate) name: String,
    pub(crate) is_folder: bool,
    pub(crate) files: Vec<(String, String)>,
    pub(crate) processed: Vec<(String, String)>,
    pub(crate) failed: Vec<(String, String)>,
    pub(crate) unsupported: Vec<String>,
    pub(crate) skipped: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

pub(crate) fn parse(_: &Source, _: &Wanted<'_>) -> Result<Parsed> {
    Err(ApiError::new(Code::Unimplemented, "import"))
}

pub(crate) fn unzip(_: &Path, _: &Path) -> Result<()> {
    Err(ApiError::new(Code::Unimplemented, "import"))
}
