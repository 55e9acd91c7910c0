//! Unpacks a tar archive, gzipped or not. Extension headers are read here rather than by the tar crate, which would
//! hold a name of any length in memory and let a second size override the first.

use super::{
    files::{Budget, is_left_out, write},
    names::{self, Names},
};
use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};
use tar::{Archive, Entry, EntryType, PaxExtensions};

/// An archive file has at most this many bytes.
const MAX_ARCHIVE_BYTES: u64 = 512 << 20;
/// An extension header has at most this many bytes.
const MAX_HEADER_BYTES: u64 = 64 << 10;

/// The content of the extension headers before an entry.
#[derive(Default)]
struct ExtensionHeaders {
    path: Option<Vec<u8>>,
    size: Option<u64>,
}

/// Unpacks into a new folder. An archive in the archive stays a file.
pub(super) fn unpack(file: &Path, to: &Path, budget: &mut Budget) -> Result<(), String> {
    let opened = File::open(file).map_err(|e| e.to_string())?;
    if opened.metadata().map_err(|e| e.to_string())?.len() > MAX_ARCHIVE_BYTES {
        return Err(format!("the archive has more than {MAX_ARCHIVE_BYTES} bytes"));
    }
    std::fs::create_dir(to).map_err(|e| e.to_string())?;
    let packed = file.extension().is_none_or(|end| end != "tar");
    let reader: Box<dyn Read> = if packed { Box::new(flate2::read::GzDecoder::new(opened)) } else { Box::new(opened) };
    let mut archive = Archive::new(reader);
    let mut names = Names::default();
    let mut extended = ExtensionHeaders::default();
    for entry in archive.entries().map_err(|e| e.to_string())?.raw(true) {
        let mut entry = entry.map_err(|e| format!("the archive is damaged: {e}"))?;
        let kind = entry.header().entry_type();
        let size = entry.header().size().map_err(|e| e.to_string())?;
        if matches!(kind, EntryType::XHeader | EntryType::XGlobalHeader | EntryType::GNULongName) {
            budget.take(0)?;
            extended.read(&mut entry, kind, size)?;
            continue;
        }
        let about = std::mem::take(&mut extended);
        budget.take(size)?;
        let raw = about.path.unwrap_or_else(|| entry.header().path_bytes().into_owned());
        let path = relative(&raw)?;
        if about.size.is_some_and(|declared| declared != size) {
            return Err(format!("{} has two sizes", names::shown(&path)));
        }
        match kind {
            EntryType::Directory | EntryType::Regular | EntryType::Continuous if path.is_empty() => continue,
            EntryType::Directory | EntryType::Regular | EntryType::Continuous => {}
            other => return Err(format!("{} is a {other:?}; only files and folders are taken", names::shown(&path))),
        }
        names.take(&path)?;
        let parts: Vec<&str> = path.split('/').collect();
        let hidden = |at: usize| is_left_out(at.checked_sub(1).map(|before| parts[before]), parts[at]);
        if (0..parts.len()).any(hidden) {
            continue;
        }
        let executable = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
        place(&mut entry, kind, &to.join(&path), size, executable)
            .map_err(|e| format!("{}: {e}", names::shown(&path)))?;
    }
    Ok(())
}

impl ExtensionHeaders {
    fn read(&mut self, entry: &mut Entry<'_, Box<dyn Read>>, kind: EntryType, size: u64) -> Result<(), String> {
        if size > MAX_HEADER_BYTES {
            return Err(format!("an extension header has more than {MAX_HEADER_BYTES} bytes"));
        }
        let mut bytes = Vec::new();
        entry.take(size).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
        if kind == EntryType::GNULongName {
            bytes.truncate(bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len()));
            self.path = Some(bytes);
            return Ok(());
        }
        for extension in PaxExtensions::new(&bytes) {
            let extension = extension.map_err(|e| format!("a damaged extension header: {e}"))?;
            let (key, value) = (extension.key_bytes(), extension.value_bytes());
            match key {
                b"path" | b"size" if kind == EntryType::XGlobalHeader => {
                    return Err("a global header names a file or a size".to_owned());
                }
                b"path" => self.path = Some(value.to_owned()),
                b"size" => {
                    let declared = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                    self.size = Some(declared.ok_or("a size that is no number")?);
                }
                key if key.starts_with(b"GNU.sparse") => return Err("a sparse file".to_owned()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The path of an entry, without `.` parts; empty for the archive's own root.
fn relative(raw: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(raw).map_err(|_| format!("the name {} is not UTF-8", raw.escape_ascii()))?;
    if text.starts_with('/') || text.split('/').any(|part| part == "..") {
        return Err(format!("{} leads out of the package", names::shown(text)));
    }
    Ok(text.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/"))
}

fn place(from: &mut impl Read, kind: EntryType, target: &Path, size: u64, executable: bool) -> std::io::Result<()> {
    if kind == EntryType::Directory {
        return std::fs::create_dir_all(target);
    }
    if let Some(parent) = target.parent() {
        std::fs::create_dir_all(parent)?;
    }
    write(target, from, size, executable)
}

/// The folder that holds the package: archives usually have one folder around everything.
pub(super) fn only_folder(unpacked: &Path) -> PathBuf {
    let entries: Vec<_> = std::fs::read_dir(unpacked).into_iter().flatten().flatten().collect();
    match entries.as_slice() {
        [one] if one.path().is_dir() => one.path(),
        _ => unpacked.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tar::{Builder, Header};

    /// One entry of an archive, byte by byte: no library writes what these tests need.
    fn entry(name: &[u8], kind: EntryType, content: &[u8], size: u64) -> Vec<u8> {
        let mut header = Header::new_old();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name);
        header.set_size(size);
        header.set_mode(0o4755);
        header.set_entry_type(kind);
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }

    fn unpacked(parts: &[Vec<u8>]) -> (tempfile::TempDir, Result<(), String>) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.tar");
        let mut bytes = parts.concat();
        bytes.extend([0; 1024]);
        std::fs::write(&file, bytes).unwrap();
        let result = unpack(&file, &dir.path().join("to"), &mut Budget::new());
        (dir, result)
    }

    fn pax(records: &[(&str, &str)]) -> Vec<u8> {
        let mut text = String::new();
        for (key, value) in records {
            let rest = format!(" {key}={value}\n").len();
            let mut length = rest + 1;
            while length != rest + length.to_string().len() {
                length = rest + length.to_string().len();
            }
            text.push_str(&format!("{length} {key}={value}\n"));
        }
        entry(b"h", EntryType::XHeader, text.as_bytes(), text.len() as u64)
    }

    #[test]
    fn an_archive_cannot_write_beside_its_folder() {
        for (name, kind, why) in [
            (&b"../evil"[..], EntryType::Regular, "leads out"),
            (b"a/../../evil", EntryType::Regular, "leads out"),
            (b"/tmp/evil", EntryType::Regular, "leads out"),
            (b"link", EntryType::Symlink, "Symlink"),
            (b"hard", EntryType::Link, "Link"),
            (b"dev", EntryType::Char, "Char"),
            (b"dev", EntryType::Block, "Block"),
            (b"pipe", EntryType::Fifo, "Fifo"),
            (b"sparse", EntryType::GNUSparse, "sparse"),
            (b"bad\xffname", EntryType::Regular, "UTF-8"),
            (b"a\xe2\x80\xaetxt", EntryType::Regular, "direction"),
        ] {
            let (dir, result) = unpacked(&[entry(name, kind, b"", 0)]);
            let error = result.unwrap_err();
            assert!(error.contains(why), "{}: {error}", name.escape_ascii());
            assert!(!dir.path().join("evil").exists());
        }
        let (_dir, result) = unpacked(&[pax(&[("path", "../evil")]), entry(b"good", EntryType::Regular, b"", 0)]);
        assert!(result.unwrap_err().contains("leads out"), "a path of an extension header");
        let (_dir, result) = unpacked(&[
            entry(b"l", EntryType::GNULongName, b"../evil\0", 8),
            entry(b"good", EntryType::Regular, b"", 0),
        ]);
        assert!(result.unwrap_err().contains("leads out"), "a long name");
    }

    #[test]
    fn one_name_cannot_be_two_files() {
        let file = |name: &[u8]| entry(name, EntryType::Regular, b"1", 1);
        for (first, second) in [(&b"a"[..], &b"a"[..]), (b"a", b"./a"), (b"a", b"A"), (b"a", b"a/b")] {
            assert!(unpacked(&[file(first), file(second)]).1.is_err(), "{first:?} {second:?}");
        }
    }

    #[test]
    fn bombs_end_at_the_limits() {
        let (_dir, result) = unpacked(&[entry(b"big", EntryType::Regular, b"", 2 << 30)]);
        assert!(result.unwrap_err().contains("bytes"), "a size beyond the budget, before a byte is written");
        let (_dir, result) = unpacked(&[entry(b"long", EntryType::GNULongName, b"", 1 << 30)]);
        assert!(result.unwrap_err().contains("extension header"), "a name of a gigabyte");
        let (_dir, result) = unpacked(&[entry(b"cut", EntryType::Regular, b"abc", 4 << 10)]);
        assert!(result.is_err(), "an archive that ends early");
        let sized =
            |declared: &str| unpacked(&[pax(&[("size", declared)]), entry(b"a", EntryType::Regular, b"abc", 3)]).1;
        assert!(sized("3").is_ok() && sized("1024").unwrap_err().contains("two sizes"));
        let mut budget = Budget::new();
        let dir = tempfile::tempdir().unwrap();
        let mut builder = Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        let mut header = Header::new_gnu();
        header.set_size(0);
        header.set_entry_type(EntryType::Directory);
        for _ in 0..=super::super::MAX_PACKAGE_FILES {
            // The same folder again and again: a file system would never fill up.
            builder.append_data(&mut header, "d", std::io::empty()).unwrap();
        }
        let bytes = builder.into_inner().unwrap().finish().unwrap();
        std::fs::write(dir.path().join("many.tgz"), bytes).unwrap();
        let error = unpack(&dir.path().join("many.tgz"), &dir.path().join("to"), &mut budget).unwrap_err();
        assert!(error.contains("files and folders"), "{error}");
    }

    #[test]
    fn good_files_are_unpacked_and_nested_archives_stay_files() {
        use std::os::unix::fs::PermissionsExt;
        let inner = entry(b"../evil", EntryType::Regular, b"x", 1);
        let (dir, result) = unpacked(&[
            entry(b"p/", EntryType::Directory, b"", 0),
            pax(&[("path", "p/caf\u{e9}.md"), ("mtime", "1.5")]),
            entry(b"p/short", EntryType::Regular, b"text", 4),
            entry(b"p/inner.tar", EntryType::Regular, &inner, inner.len() as u64),
            entry(b"p/.npmrc", EntryType::Regular, b"git=./x", 7),
            entry(b"p/.git/config", EntryType::Regular, b"x", 1),
            entry(b"p/node_modules/.bin/git", EntryType::Regular, b"x", 1),
        ]);
        result.unwrap();
        let package = only_folder(&dir.path().join("to"));
        let mut names: Vec<String> = std::fs::read_dir(&package)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["caf\u{e9}.md", "inner.tar"]);
        let mode = std::fs::metadata(package.join("inner.tar")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755, "executable, without the setuid bit");
    }
}
