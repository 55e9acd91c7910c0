//! The vault's notes as resources: `vault:///folder/note.md`. Lists and reads use the vault's own tools, so that policy
//! and record apply.

use super::sources::{ListedTemplate, Page, ReadContents, Requester, ResourceSource};
use crate::{
    RpcError,
    jsonrpc::INTERNAL_ERROR,
    wire::{
        self, Item,
        answers::{ContentsMeta, Resource, ResourceBody, ResourceContents, Template},
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use toolyard_engine::BoxFuture;
use toolyard_protocol::{ErrorCode, Failure, ToolResult};

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

    fn list<'a>(&'a self, requester: &'a Requester, cursor: Option<&'a str>) -> BoxFuture<'a, Result<Page, RpcError>> {
        Box::pin(async move {
            let offset: u64 = match cursor {
                None => 0,
                Some(text) => text.parse().map_err(|_| RpcError::params("the cursor is not one of ours"))?,
            };
            let args = wire::object(&ListFiles { recursive: true, extensions: ["md"], limit: PAGE, offset })?;
            let result = match requester.call("vault.listFiles", args).await {
                Ok(result) => result,
                // A caller that may not list notes gets an empty list.
                Err(failure) if is_hidden(&failure) => return Ok(Page::default()),
                Err(failure) => return Err(failure.into()),
            };
            let Files { items, next_offset } = answer_of("vault.listFiles", result)?;
            let items = items.into_iter().map(|file| Item::Own(note(file))).collect();
            Ok(Page { items, next: next_offset.map(|offset| offset.to_string()) })
        })
    }

    fn templates<'a>(&'a self, _: &'a Requester) -> BoxFuture<'a, Result<Vec<ListedTemplate>, RpcError>> {
        Box::pin(async {
            Ok(vec![Item::Own(Template {
                uri_template: format!("{SCHEME}{{+path}}"),
                name: "note".to_owned(),
                title: Some("A file of the vault".to_owned()),
                description: Some("A note or any other file, by its path in the vault.".to_owned()),
            })])
        })
    }

    fn read<'a>(
        &'a self,
        requester: &'a Requester,
        uri: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<ReadContents>>, RpcError>> {
        Box::pin(async move {
            let Some(path) = uri.strip_prefix(SCHEME).and_then(decoded).filter(|path| !path.is_empty()) else {
                return Ok(None);
            };
            let is_text = mime(&path).starts_with("text/") || mime(&path) == "application/json";
            let arguments = |form| wire::object(&ReadFile { path: &path, form });
            let form = if is_text { "text" } else { "base64" };
            let mut read = requester.call("vault.readFile", arguments(form)?).await;
            if is_text && read.as_ref().is_err_and(|failure| failure.code == ErrorCode::ValidationError) {
                // Not text after all.
                read = requester.call("vault.readFile", arguments("base64")?).await;
            }
            let result = match read {
                Ok(result) => result,
                Err(failure) if failure.code == ErrorCode::NotFound || is_hidden(&failure) => return Ok(None),
                Err(failure) => return Err(failure.into()),
            };
            let FileRead { content, encoding, etag, truncated } = answer_of("vault.readFile", result)?;
            let body = match encoding.as_deref() {
                Some("base64") => ResourceBody::Blob(content),
                _ => ResourceBody::Text(content),
            };
            let meta = ContentsMeta { etag, truncated };
            let mime_type = mime(&path).to_owned();
            Ok(Some(vec![Item::Own(ResourceContents { uri: uri.to_owned(), mime_type, body, meta })]))
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

fn note(file: File) -> Resource {
    let name = file.path.rsplit('/').next().unwrap_or(&file.path);
    Resource {
        uri: note_uri(&file.path),
        title: Some(name.strip_suffix(".md").unwrap_or(name).to_owned()),
        mime_type: Some(mime(&file.path).to_owned()),
        size: file.size_bytes,
        name: file.path,
    }
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

/// The arguments of `vault.listFiles`.
#[derive(Serialize)]
struct ListFiles {
    recursive: bool,
    extensions: [&'static str; 1],
    limit: u64,
    offset: u64,
}

/// What `vault.listFiles` answers.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Files {
    items: Vec<File>,
    next_offset: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    path: String,
    size_bytes: Option<u64>,
}

/// The arguments of `vault.readFile`.
#[derive(Serialize)]
struct ReadFile<'a> {
    path: &'a str,
    #[serde(rename = "as")]
    form: &'a str,
}

/// What `vault.readFile` answers.
#[derive(Deserialize)]
struct FileRead {
    content: String,
    encoding: Option<String>,
    etag: Option<String>,
    truncated: Option<bool>,
}

/// What a tool of the vault answered.
fn answer_of<T: DeserializeOwned>(tool: &str, result: ToolResult) -> Result<T, RpcError> {
    let data = result.into_parts().data.unwrap_or_default();
    T::deserialize(data).map_err(|e| RpcError::new(INTERNAL_ERROR, format!("the answer of {tool} cannot be read: {e}")))
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
