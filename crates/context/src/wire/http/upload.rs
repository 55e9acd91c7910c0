//! A minimal `multipart/form-data` parser for uploads.

use crate::error::{ApiError, Result};

/// An uploaded file.
pub(crate) struct Upload<'a> {
    pub(crate) name: String,
    pub(crate) bytes: &'a [u8],
}

/// The part named `file`.
pub(crate) fn file<'a>(content_type: &str, body: &'a [u8]) -> Result<Upload<'a>> {
    let missing = || ApiError::argument("Invalid request parameters: body.file: Field required");
    let boundary = content_type
        .split(';')
        .filter_map(|part| part.trim().strip_prefix("boundary="))
        .map(|b| b.trim_matches('"'))
        .next()
        .filter(|b| !b.is_empty() && b.len() <= 200)
        .ok_or_else(|| ApiError::argument("the body must be multipart/form-data with a boundary"))?;
    let mark = format!("--{boundary}").into_bytes();
    let mut rest = after(body, &mark).ok_or_else(missing)?;
    while let Some(part) = rest.strip_prefix(b"\r\n") {
        let head_end = find(part, b"\r\n\r\n").ok_or_else(missing)?;
        let head = String::from_utf8_lossy(&part[..head_end]).into_owned();
        let content = &part[head_end + 4..];
        let closing = [b"\r\n".as_slice(), &mark].concat();
        let end = find(content, &closing).ok_or_else(missing)?;
        let disposition =
            head.lines().find(|l| l.to_ascii_lowercase().starts_with("content-disposition:")).unwrap_or_default();
        if parameter(disposition, "name").as_deref() == Some("file") {
            let name = parameter(disposition, "filename").unwrap_or_else(|| "upload".to_owned());
            return Ok(Upload { name, bytes: &content[..end] });
        }
        rest = &content[end + closing.len()..];
    }
    Err(missing())
}

fn parameter(header: &str, name: &str) -> Option<String> {
    let start = header.find(&format!("; {name}=\"")).map(|at| at + name.len() + 4)?;
    let rest = &header[start..];
    rest.find('"').map(|end| rest[..end].to_owned())
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len().max(1)).position(|window| window == what)
}

fn after<'a>(text: &'a [u8], what: &[u8]) -> Option<&'a [u8]> {
    find(text, what).map(|at| &text[at + what.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_found_among_other_parts() {
        let body = b"--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"w.md\"\r\nContent-Type: text/markdown\r\n\r\n# W\r\n\r\n--x--\r\n";
        let upload = file("multipart/form-data; boundary=x", body).unwrap();
        assert_eq!((upload.name.as_str(), upload.bytes), ("w.md", b"# W\r\n".as_slice()));
        assert!(file("multipart/form-data", body).is_err());
        assert!(file("multipart/form-data; boundary=x", b"--x--").is_err());
        assert!(file("multipart/form-data; boundary=x", b"--x\r\nno end").is_err());
    }
}
