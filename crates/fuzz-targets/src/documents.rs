//! What agents and clients hand over: patches of notes, URIs, archives, uploads.

use toolyard_context::{
    store::uri::{Identity, SCHEME, StorePath},
    wire::fuzzing::multipart_file,
};
use toolyard_import::Limits;
use toolyard_parse::fuzzing::unpack_zip;
use toolyard_vault::fuzzing::apply_patch;

/// A patch of `vault.patchFile`. The input is the note, a zero byte, and the patch as JSON.
pub fn patch(bytes: &[u8]) -> bool {
    let Some(at) = bytes.iter().position(|byte| *byte == 0) else { return false };
    let Ok(note) = std::str::from_utf8(&bytes[..at]) else { return false };
    let json = &bytes[at + 1..];
    let Some(outcome) = apply_patch(note, json) else { return false };
    match outcome {
        Ok((patched, operations)) => {
            assert!(patched.len() as u64 <= toolyard_vault::MAX_FILE_BYTES.max(bytes.len() as u64));
            assert!(operations >= 1);
            let (again, _) = apply_patch(note, json).and_then(Result::ok).expect("the same patch fits again");
            assert_eq!(again, patched, "the same patch has the same result");
            true
        }
        Err(failure) => {
            assert!(!failure.message.is_empty());
            false
        }
    }
}

/// A `viking://` URI of a caller.
pub fn uri(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let caller = Identity::new("acme", "ada", Some("helper")).expect("a plain identity");
    let Ok(place) = StorePath::parse(text, &caller) else { return false };
    assert!(place.visible_to(&caller), "only the caller's own places are read");
    for name in place.names() {
        assert!(!name.is_empty() && name != "." && name != "..", "{text:?}");
        assert!(!name.contains(['/', '\\', '\0']), "{text:?}");
    }
    let written = place.to_string();
    assert!(written.starts_with(SCHEME));
    assert_eq!(StorePath::parse(&written, &caller).as_ref().ok(), Some(&place), "{text:?} is written as {written:?}");
    if let Some(parent) = place.parent() {
        assert!(place.is_within(&parent));
    }
    let stranger = Identity::new("acme", "eve", None).expect("a plain identity");
    if text.starts_with("viking://user/ada") && place.names().len() > 1 {
        assert!(StorePath::parse(&written, &stranger).is_err(), "another user's place is refused");
    }
    true
}

/// A zip archive that is imported.
pub fn archive(bytes: &[u8]) -> bool {
    let limits = Limits { files: 64, file_bytes: 1 << 20, unpacked_bytes: 4 << 20, ..Limits::default() };
    let (archive, outcome) = unpack_zip(bytes, &limits);
    assert!(archive.files.len() <= limits.files);
    let total: u64 = archive.files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    assert!(total <= limits.unpacked_bytes, "{total} bytes");
    for (path, _) in &archive.files {
        let safe = |name: &str| !name.is_empty() && name != "." && name != "..";
        assert!(path.split('/').all(safe), "{path:?} leads out of the archive");
        assert!(!path.contains(['\\', '\0']), "{path:?}");
    }
    outcome.is_ok() && !archive.files.is_empty()
}

/// A file that is uploaded. The input is the `Content-Type`, a line end, and the body.
pub fn multipart(bytes: &[u8]) -> bool {
    let Some(at) = bytes.iter().position(|byte| *byte == b'\n') else { return false };
    let (head, body) = (String::from_utf8_lossy(&bytes[..at]), &bytes[at + 1..]);
    let found = multipart_file(&head, body);
    if let Some((_, content)) = found {
        assert!(body.as_ptr_range().contains(&content.as_ptr()) || content.is_empty(), "a part of the body");
        assert!(content.len() < body.len());
    }
    // Any content without the boundary in it arrives as it was sent.
    const BOUNDARY: &str = "9f3c-boundary-of-the-target";
    if !contains(body, BOUNDARY.as_bytes()) {
        let start = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.md\"\r\n\r\n");
        let sent = [start.as_bytes(), body, format!("\r\n--{BOUNDARY}--\r\n").as_bytes()].concat();
        let read = multipart_file(&format!("multipart/form-data; boundary={BOUNDARY}"), &sent);
        assert_eq!(read, Some(("a.md".to_owned(), body)));
    }
    found.is_some()
}

fn contains(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|window| window == what)
}
