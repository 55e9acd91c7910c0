//! The properties of a text file that an edit must keep: byte order mark, line endings, final newline.

use crate::{error::VaultResult, path::VaultPath};
use std::borrow::Cow;
use toolyard_protocol::{ErrorCode, Failure};

/// What some editors put at the beginning of a UTF-8 file.
pub(crate) const BOM: &str = "\u{feff}";

/// The content as text, or why it is none.
pub(crate) fn decode<'a>(path: &VaultPath, bytes: &'a [u8]) -> VaultResult<&'a str> {
    std::str::from_utf8(bytes).map_err(|error| {
        Failure::new(ErrorCode::PreconditionFailed, format!("{path} is not UTF-8 text (byte {})", error.valid_up_to()))
            .suggest("Read it with as: \"base64\".")
            .detail("path", path.as_str())
            .detail("validUpTo", error.valid_up_to())
    })
}

/// The line ending that most lines have.
pub(crate) fn dominant_eol(text: &str) -> &'static str {
    let all = memchr::memchr_iter(b'\n', text.as_bytes()).count();
    let crlf = memchr::memmem::find_iter(text.as_bytes(), b"\r\n").count();
    if crlf * 2 > all { "\r\n" } else { "\n" }
}

/// The same text with this line ending everywhere.
pub(crate) fn with_eol<'a>(text: &'a str, eol: &str) -> Cow<'a, str> {
    if !text.contains('\n') {
        return Cow::Borrowed(text);
    }
    let unix = if text.contains("\r\n") { Cow::Owned(text.replace("\r\n", "\n")) } else { Cow::Borrowed(text) };
    if eol == "\n" { unix } else { Cow::Owned(unix.replace('\n', eol)) }
}

/// New content for an existing file: keeps its byte order mark and, unless the new content chooses itself, its CRLF.
pub(crate) fn keep_habits(old: &[u8], new: &str) -> String {
    let Ok(old) = std::str::from_utf8(old) else { return new.to_owned() };
    let mut out = String::with_capacity(new.len() + 3);
    if old.starts_with(BOM) && !new.starts_with(BOM) {
        out.push_str(BOM);
    }
    if dominant_eol(old) == "\r\n" && !new.contains("\r\n") {
        out.push_str(&with_eol(new, "\r\n"));
    } else {
        out.push_str(new);
    }
    out
}

/// Appends text as separate lines, with the file's line ending.
pub(crate) fn append(old: &str, addition: &str) -> String {
    let eol = dominant_eol(old);
    let mut out = old.to_owned();
    let is_empty = old.trim_start_matches(BOM).is_empty();
    if !is_empty && !old.ends_with('\n') {
        out.push_str(eol);
    }
    out.push_str(&with_eol(addition, eol));
    if !is_empty && old.ends_with('\n') && !addition.ends_with('\n') {
        out.push_str(eol);
    }
    out
}

/// The nearest character boundary at or before the offset.
pub(crate) fn floor_boundary(text: &str, offset: usize) -> usize {
    let mut at = offset.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn habits_are_kept() {
        assert_eq!(keep_habits("\u{feff}a\r\nb\r\n".as_bytes(), "x\ny\n"), "\u{feff}x\r\ny\r\n");
        assert_eq!(keep_habits(b"a\nb\r\nc\n", "x\ny\n"), "x\ny\n");
        assert_eq!(keep_habits(&[0xff, b'\r', b'\n'], "x\n"), "x\n");
    }

    #[test]
    fn appended_text_stands_on_its_own_lines() {
        assert_eq!(append("a\r\n", "b\nc"), "a\r\nb\r\nc\r\n");
        assert_eq!(append("a", "b"), "a\nb");
        assert_eq!(append("", "b"), "b");
        assert_eq!(append("a\n", "b\n"), "a\nb\n");
    }
}
