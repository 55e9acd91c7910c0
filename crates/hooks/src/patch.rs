//! The files that a patch of Codex's `apply_patch` changes. The content of the patch does not affect the result.

/// A file that a patch changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PatchedFile {
    /// A new file.
    Add(String),
    /// A file that is changed in its place.
    Update(String),
    /// A file that is removed.
    Delete(String),
    /// A file that is changed and put elsewhere.
    Move {
        /// Where it was.
        from: String,
        /// Where it will be.
        to: String,
    },
}

impl PatchedFile {
    /// Every path that is touched.
    pub(crate) fn paths(&self) -> Vec<&str> {
        match self {
            Self::Add(path) | Self::Update(path) | Self::Delete(path) => vec![path],
            Self::Move { from, to } => vec![from, to],
        }
    }
}

/// Reads the headers of a patch. A patch without one, or that does not begin as patches do, is not understood.
pub(crate) fn read(patch: &str) -> Result<Vec<PatchedFile>, &'static str> {
    let mut lines = patch.trim().lines();
    if lines.next().map(str::trim) != Some("*** Begin Patch") {
        return Err("the patch does not begin with \"*** Begin Patch\"");
    }
    let mut files: Vec<PatchedFile> = Vec::new();
    for line in lines {
        // Lines of content begin with a space, a plus or a minus, so a header cannot be one.
        let Some(header) = line.strip_prefix("*** ") else { continue };
        let header = header.trim_end();
        if let Some(path) = header.strip_prefix("Add File: ") {
            files.push(PatchedFile::Add(path.to_owned()));
        } else if let Some(path) = header.strip_prefix("Update File: ") {
            files.push(PatchedFile::Update(path.to_owned()));
        } else if let Some(path) = header.strip_prefix("Delete File: ") {
            files.push(PatchedFile::Delete(path.to_owned()));
        } else if let Some(to) = header.strip_prefix("Move to: ") {
            match files.pop() {
                Some(PatchedFile::Update(from)) => files.push(PatchedFile::Move { from, to: to.to_owned() }),
                _ => return Err("the patch moves a file that it does not name"),
            }
        } else if !matches!(header, "End Patch" | "End of File") {
            return Err("the patch has a header that is not known");
        }
    }
    if files.is_empty() { Err("the patch names no file") } else { Ok(files) }
}
