//! `vault.readFile`: reads a file or a part of it.

use super::{Args, Run, Tool, answer, parse, reads, schema::PathArg};
use crate::{
    error::{VaultResult, validation},
    etag::etag,
    path::VaultPath,
    text::{decode, floor_boundary},
    view::{Purpose, StopCondition, View, missing},
};
use base64::Engine as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolyard_engine::Output;

/// Default number of bytes in one answer.
const DEFAULT_MAX_BYTES: usize = 1 << 20;
/// Maximum number of bytes in one answer.
const MAX_BYTES: usize = 8 << 20;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Input {
    /// The file.
    path: PathArg,
    /// At most this many bytes (default 1048576, at most 8388608); `truncated` says whether there was more.
    #[serde(default)]
    #[schemars(range(min = 1, max = 8_388_608))]
    max_bytes: Option<usize>,
    /// Only this part, as UTF-8 byte offsets. Offsets inside a character are moved back to its beginning.
    #[serde(default)]
    range: Option<Range>,
    /// "text" (default), or "base64" for files that are not text.
    #[serde(default, rename = "as")]
    form: Option<Form>,
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Range {
    /// First byte.
    start: usize,
    /// The byte after the last one.
    end: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Form {
    #[default]
    Text,
    Base64,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Data {
    path: String,
    content: String,
    /// Of the whole file, also when only a part was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<i64>,
    /// Whether the file goes on after this.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
    /// "utf-8" or "base64".
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    /// Of the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    /// Which bytes these are.
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<Range>,
}

pub(super) const TOOL: Tool = Tool {
    name: "vault.readFile",
    define: || {
        reads::<Input, Data>(
            "Read note",
            "Reads a file of the vault. The etag in the answer is what vault.writeFile and vault.patchFile take as \
             expectedEtag.",
        )
    },
    run: Run::Read(run),
};

fn run(view: &dyn View, args: Args, stop: &StopCondition) -> VaultResult<Output> {
    let input: Input = parse(args)?;
    stop.check()?;
    let path = VaultPath::parse(&input.path.0)?;
    let max_bytes = input.max_bytes.unwrap_or(DEFAULT_MAX_BYTES);
    if !(1..=MAX_BYTES).contains(&max_bytes) {
        return Err(validation(format!("maxBytes is 1 to {MAX_BYTES}")));
    }
    let Some(content) = view.read(&path, Purpose::Read)? else { return Err(missing(view, &path)) };
    let bytes = &content.bytes;
    let (start, end) = match input.range {
        None => (0, bytes.len()),
        Some(Range { start, end }) if start <= end && start <= bytes.len() => (start, end.min(bytes.len())),
        Some(Range { start, end }) => {
            return Err(validation(format!("{start}..{end} is not a part of a file of {} bytes", bytes.len()))
                .detail("sizeBytes", bytes.len()));
        }
    };
    let end = end.min(start.saturating_add(max_bytes));
    let (text, start, end, encoding) = match input.form.unwrap_or_default() {
        Form::Text => {
            let text = decode(&path, bytes)?;
            let (start, end) = (floor_boundary(text, start), floor_boundary(text, end));
            (text[start..end].to_owned(), start, end, "utf-8")
        }
        Form::Base64 => (base64::engine::general_purpose::STANDARD.encode(&bytes[start..end]), start, end, "base64"),
    };
    let is_part = start > 0 || end < bytes.len();
    let data = Data {
        path: path.to_string(),
        content: text,
        etag: Some(etag(bytes)),
        mtime_ms: Some(content.stat.mtime_ms),
        mtime: Some(content.stat.mtime_ms),
        truncated: Some(end < bytes.len()),
        encoding: Some(encoding.to_owned()),
        size_bytes: Some(bytes.len() as u64),
        range: is_part.then_some(Range { start, end }),
    };
    answer(&data, format!("Read {path}"))
}
