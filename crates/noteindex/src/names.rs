//! Comparison of names, tags and paths, and creation of private folders.

use std::{borrow::Cow, path::Path};
use unicode_normalization::{UnicodeNormalization, is_nfc};

/// The Unicode NFC form, in which names, tags and paths are compared: `é` may be stored as one character or as two.
pub fn nfc(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || is_nfc(text) { text.into() } else { text.nfc().collect::<String>().into() }
}

/// Whether a tag equals the wanted tag or is nested under it.
pub fn tag_matches(tag: &str, wanted: &str) -> bool {
    tag.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A file name without folder and extension.
pub fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map_or(name, |(stem, _)| if stem.is_empty() { name } else { stem })
}

/// The normalised form in which link targets and note names are compared.
pub fn link_name(target: &str) -> String {
    let name = target.rsplit('/').next().unwrap_or(target);
    let stem = name.strip_suffix(".md").or_else(|| name.strip_suffix(".markdown")).unwrap_or(name);
    nfc(&stem.trim().to_lowercase()).into_owned()
}

/// Creates a folder that only the user can access.
pub fn private_folder(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let mode = std::fs::metadata(path)?.permissions().mode();
    if mode & 0o077 != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}
