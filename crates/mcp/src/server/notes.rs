//! The vault's notes as resources: `vault:///folder/note.md`. Lists and reads by the vault's own tools, so that policy
//! and record hold here as well.

use super::shelf::{Asker, Page, ResourceSource};
use crate::RpcError;
use serde_json::{Map, Value, json};
use toolyard_engine::BoxFuture;
use toolyard_protocol::{ErrorCode, Failure};

/// The beginning of every note's URI.
const SCHEME: &str = "vault:///";
/// Notes on one page.
const PAGE: u64 = 1000;

/// The vault's notes.
pub struct VaultNotes;

impl ResourceSource for VaultNotes {
    fn name(&self) -> &str {
        "vault"
    }

    fn owns(&self, uri: &str) -> bool {
        uri.starts_with(SCHEME)
    }

    fn list<'a>(&'a self, asker: &'a Asker, cursor: Option<&'a str>) -> BoxFuture<'a, Result<Page, RpcError>> {
        Box::pin(async move {
            let offset: u64 = match cursor {
                None => 0,
                Some(text) => text.parse().map_err(|_| RpcError::params("the cursor is not one of ours"))?,
            };
            let args = object(json!({"recursive": true, "extensions": ["md"], "limit": PAGE, "offset": offset}));
            let result = match asker.call("vault.listFiles", args).await {
                Ok(result) => result,
                // Who may not list notes has none to list.
                Err(failure) if is_hidden(&failure) => return Ok(Page::default()),
                Err(failure) => return Err(failure.into()),
            };
            let data = result.data.clone().unwrap_or_default();
            let files = data.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
            let items = files.iter().filter_map(note).collect();
            let next = data.get("nextOffset").and_then(Value::as_u64).map(|offset| offset.to_string());
            Ok(Page { items, next })
        })
    }

    fn templates<'a>(&'a self, _: &'a Asker) -> BoxFuture<'a, Result<Vec<Value>, RpcError>> {
        Box::pin(async {
            Ok(vec![json!({
                "uriTemplate": "vault:///{+path}", "name": "note", "title": "A file of the vault",
                "description": "A note or any other file, by its path in the vault.",
            })])
        })
    }

    fn read<'a>(&'a self, asker: &'a Asker, uri: &'a str) -> BoxFuture<'a, Result<Option<Vec<Value>>, RpcError>> {
        Box::pin(async move {
            let Some(path) = uri.strip_prefix(SCHEME).and_then(decoded).filter(|path| !path.is_empty()) else {
                return Ok(None);
            };
            let is_text = mime(&path).starts_with("text/") || mime(&path) == "application/json";
            let form = if is_text { "text" } else { "base64" };
            let mut read = asker.call("vault.readFile", object(json!({"path": path, "as": form}))).await;
            if is_text && read.as_ref().is_err_and(|failure| failure.code == ErrorCode::ValidationError) {
                // Not text after all.
                read = asker.call("vault.readFile", object(json!({"path": path, "as": "base64"}))).await;
            }
            let result = match read {
                Ok(result) => result,
                Err(failure) if failure.code == ErrorCode::NotFound || is_hidden(&failure) => return Ok(None),
                Err(failure) => return Err(failure.into()),
            };
            let data = result.data.clone().unwrap_or_default();
            let content = data.get("content").cloned().unwrap_or_default();
            let is_base64 = data.get("encoding").and_then(Value::as_str) == Some("base64");
            let key = if is_base64 { "blob" } else { "text" };
            let mut meta = Map::new();
            for field in ["etag", "truncated"] {
                if let Some(value) = data.get(field) {
                    meta.insert(format!("dev.toolyard/{field}"), value.clone());
                }
            }
            Ok(Some(vec![json!({"uri": uri, "mimeType": mime(&path), key: content, "_meta": meta})]))
        })
    }
}

/// The URI of a path in the vault.
pub fn note_uri(path: &str) -> String {
    let mut uri = SCHEME.to_owned();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/!$&'()*+,;=:@".contains(&byte) {
            uri.push(byte as char);
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (high, low) = (rest.next()?, rest.next()?);
        let digit = |byte: u8| (byte as char).to_digit(16);
        bytes.push((digit(high)? * 16 + digit(low)?) as u8);
    }
    String::from_utf8(bytes).ok()
}

fn note(file: &Value) -> Option<Value> {
    let path = file.get("path")?.as_str()?;
    let name = path.rsplit('/').next().unwrap_or(path);
    let title = name.strip_suffix(".md").unwrap_or(name);
    let mut note = json!({"uri": note_uri(path), "name": path, "title": title, "mimeType": mime(path)});
    if let Some(size) = file.get("sizeBytes") {
        note["size"] = size.clone();
    }
    Some(note)
}

fn mime(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase()).as_deref() {
        Some("md" | "markdown") => "text/markdown",
        Some("txt" | "log") => "text/plain",
        Some("csv") => "text/csv",
        Some("html" | "htm") => "text/html",
        Some("json" | "canvas") => "application/json",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some("svg") => "image/svg+xml",
        Some("pdf") => "application/pdf",
        _ => "application/octet-stream",
    }
}

fn is_hidden(failure: &Failure) -> bool {
    failure.code == ErrorCode::PolicyDenied
        || (failure.code == ErrorCode::NotFound && failure.message.contains("vault.listFiles"))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_survive_being_uris() {
        for path in ["a.md", "Ordner/Ä b#c?.md", "100%/x.md"] {
            let uri = note_uri(path);
            assert!(uri.is_ascii() && !uri.contains(' '), "{uri}");
            assert_eq!(uri.strip_prefix(SCHEME).and_then(decoded).as_deref(), Some(path));
        }
        assert_eq!(decoded("%zz"), None);
        assert_eq!(decoded("%4"), None);
    }
}
