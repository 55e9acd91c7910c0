//! JSON Lines with a space after `:` and `,`, as the original server writes them; this is also easier to read.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::ser::Formatter;
use std::io;

struct SpacedFormatter;

impl Formatter for SpacedFormatter {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }
    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }
    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

/// Serialises values, one per line.
pub(crate) fn lines<T: Serialize>(values: &[T]) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    for value in values {
        value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, SpacedFormatter))?;
        bytes.push(b'\n');
    }
    String::from_utf8(bytes).map_err(serde::ser::Error::custom)
}

/// Parses lines. A crash can truncate a line, so an invalid line is skipped with a warning.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Vec<T> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .filter_map(|line| {
            serde_json::from_str(line)
                .inspect_err(|error| tracing::warn!(%error, "a line of a session's messages cannot be read"))
                .ok()
        })
        .collect()
}
