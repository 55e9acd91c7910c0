//! Detects disguised paths: percent-encoding in the spellings that lax decoders accept, characters that are normalised
//! to dots, and invisible characters. Paths are only inspected, never rewritten.

use std::borrow::Cow;
use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// The text as a program would read it that normalises (NFKC) and drops invisible characters. Characters that resemble
/// a slash, a colon or several dots are kept: they are common in Japanese names and harmless by themselves.
pub(super) fn without_lookalikes(text: &str) -> String {
    if text.is_ascii() {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars().filter(|c| !is_invisible(*c)) {
        let stands_for = || c.nfkc();
        if stands_for().any(|n| matches!(n, '/' | '\\' | ':')) || stands_for().filter(|n| *n == '.').count() > 1 {
            out.push(c);
        } else {
            out.extend(stands_for().filter(|n| !is_invisible(*n)));
        }
    }
    out
}

/// Whether the normalised text has a `.` or `..` between slashes.
pub(super) fn hides_traversal(text: &str) -> bool {
    let normal: Cow<'_, str> = if text.is_ascii() { text.into() } else { text.nfkc().collect::<String>().into() };
    normal.split(['/', '\\']).any(|segment| matches!(segment.trim(), "." | ".."))
}

/// Format characters and the others that are drawn as nothing at all.
fn is_invisible(c: char) -> bool {
    !c.is_ascii()
        && (c.general_category() == GeneralCategory::Format
            || matches!(c as u32,
                0x034F | 0x115F | 0x1160 | 0x17B4 | 0x17B5 | 0x180B..=0x180F | 0x3164 | 0xFFA0
                | 0xFE00..=0xFE0F | 0xE0100..=0xE01EF)) // joiners, fillers, variation selectors
}

/// Decodes `%2e` and `%u002e` once, overlong UTF-8 (`%c0%ae`) included; bytes that make no character are left out, as
/// some decoders do. `None` when there is nothing to decode.
pub(super) fn decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut changed = false;
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if let Some(byte) = hex(rest, b"%", 2).and_then(|value| u8::try_from(value).ok()) {
            out.push(byte);
            (at, changed) = (at + 3, true);
        } else if let Some(value) = hex(rest, b"%u", 4).or_else(|| hex(rest, b"%U", 4)) {
            // Half of a surrogate pair is not a character.
            out.extend(char::from_u32(value).iter().flat_map(|c| c.encode_utf8(&mut [0; 4]).as_bytes().to_vec()));
            (at, changed) = (at + 6, true);
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    changed.then(|| lax_utf8(&out))
}

fn hex(bytes: &[u8], mark: &[u8], digits: usize) -> Option<u32> {
    let digits = bytes.strip_prefix(mark)?.get(..digits)?;
    let digits = std::str::from_utf8(digits).ok().filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u32::from_str_radix(digits, 16).ok()
}

/// Decodes UTF-8 and accepts overlong encodings.
fn lax_utf8(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let (follow, bits) = match bytes[at] {
            byte @ 0..=0x7F => (0, byte),
            byte @ 0xC0..=0xDF => (1, byte & 0x1F),
            byte @ 0xE0..=0xEF => (2, byte & 0x0F),
            byte @ 0xF0..=0xF7 => (3, byte & 0x07),
            _ => {
                at += 1;
                continue;
            }
        };
        let tail = bytes.get(at + 1..=at + follow).filter(|tail| tail.iter().all(|b| b & 0xC0 == 0x80));
        let code = tail.map(|tail| tail.iter().fold(u32::from(bits), |code, b| (code << 6) | u32::from(b & 0x3F)));
        out.extend(code.and_then(char::from_u32));
        at += 1 + tail.map_or(0, <[u8]>::len);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_dot_is_read_as_one() {
        for spelled in ["%2e", "%u002E", "%c0%ae", "%e0%80%ae", "%f0%80%80%ae", "%ff%2e"] {
            assert_eq!(decoded(spelled).as_deref(), Some("."), "{spelled}");
        }
        assert_eq!(decoded("%2541").as_deref(), Some("%41"), "once at a time");
        assert_eq!(decoded("100% sure, 5%"), None);
        assert_eq!(without_lookalikes("．\u{200b}․\u{fe0f}%２e"), "..%2e");
        assert_eq!(without_lookalikes("Ｑ：Ａ／Ｂ…"), "Q：A／B…");
        assert!(hides_traversal("a／．．／b") && hides_traversal("‥/x") && !hides_traversal("C#／.NET…"));
    }
}
