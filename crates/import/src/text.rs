//! Decodes bytes to text: UTF-8, UTF-16 with a byte order mark, otherwise the encoding a web browser would guess.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// Number of leading bytes examined to distinguish text from binary data.
const PROBE_BYTES: usize = 8_192;

/// Decodes bytes; `None` when they are not text.
pub fn decode(bytes: &[u8]) -> Option<String> {
    if let Some((encoding, mark)) = Encoding::for_bom(bytes) {
        return Some(encoding.decode_without_bom_handling(bytes.get(mark..)?).0.into_owned());
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        return (!text.get(..text.floor_char_boundary(PROBE_BYTES)).unwrap_or(text).contains('\0'))
            .then(|| text.to_owned());
    }
    let probe = bytes.get(..PROBE_BYTES).unwrap_or(bytes);
    let odd = probe.iter().filter(|byte| **byte < 9 || (14..32).contains(*byte)).count();
    (odd * 100 <= probe.len()).then(|| WINDOWS_1252.decode_without_bom_handling(bytes).0.into_owned())
}

/// Decodes a web page, which may declare its encoding in its first kilobyte.
pub fn decode_html(bytes: &[u8]) -> Option<String> {
    if std::str::from_utf8(bytes).is_ok() || Encoding::for_bom(bytes).is_some() {
        return decode(bytes);
    }
    let head = String::from_utf8_lossy(bytes.get(..1_024).unwrap_or(bytes)).to_ascii_lowercase();
    let label = head.split("charset=").nth(1).map(|rest| rest.trim_start_matches(['"', '\'']));
    let label = label.and_then(|rest| rest.split(['"', '\'', '>', ' ', ';', '/']).next());
    match label.and_then(|label| Encoding::for_label(label.as_bytes())) {
        Some(encoding) if encoding != UTF_8 => Some(encoding.decode_without_bom_handling(bytes).0.into_owned()),
        _ => decode(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_text_or_nothing() {
        assert_eq!(decode("naïve".as_bytes()).as_deref(), Some("naïve"));
        assert_eq!(decode(b"na\xefve").as_deref(), Some("naïve"));
        assert_eq!(decode(b"\xff\xfea\0b\0").as_deref(), Some("ab"));
        assert_eq!(decode(&[0, 159, 146, 150, 1, 2, 3]), None);
        assert_eq!(decode(b"a\0b"), None);
        assert_eq!(decode_html(b"<meta charset=\"gbk\">\xc4\xe3").as_deref(), Some("<meta charset=\"gbk\">你"));
    }
}
