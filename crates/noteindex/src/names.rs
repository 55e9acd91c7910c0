//! How names, tags and paths are compared, and how a folder of our own is made.

use std::{borrow::Cow, path::Path};
use unicode_normalization::{UnicodeNormalization, is_nfc};

/// The form in which names, tags and paths are compared: `é` is one letter, however the disk or the keyboard spells it.
pub fn nfc(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || is_nfc(text) { text.into() } else { text.nfc().collect::<String>().into() }
}

/// Whether a tag is the wanted one or lies below it.
pub fn tag_matches(tag: &str, wanted: &str) -> bool {
    tag.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The name of a file without its folder and extension.
pub fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map_or(name, |(stem, _)| if stem.is_empty() { name } else { stem })
}

/// The form in which a link's target and a note's name are compared.
pub fn link_name(target: &str) -> String {
    let name = target.rsplit('/').next().unwrap_or(target);
    let stem = name.strip_suffix(".md").or_else(|| name.strip_suffix(".markdown")).unwrap_or(name);
    nfc(&stem.trim().to_lowercase()).into_owned()
}

/// Makes a folder that the user alone can look into.
pub fn private_folder(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let mode = std::fs::metadata(path)?.permissions().mode();
    if mode & 0o077 != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}
