//! One JSON value a line, with a space after `:` and `,`: as the original writes it, and easier on the eye.

use serde::Serialize;
use serde_json::{Value, ser::Formatter};
use std::io;

struct Spaced;

impl Formatter for Spaced {
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

/// A value on one line, without the line's end.
pub(crate) fn line(value: &Value) -> String {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, Spaced);
    if value.serialize(&mut serializer).is_err() {
        return String::new();
    }
    String::from_utf8(bytes).unwrap_or_default()
}

/// Values on lines.
pub(crate) fn lines(values: &[Value]) -> String {
    values.iter().map(|value| line(value) + "\n").collect()
}

/// Reads lines; what cannot be read is left out.
pub(crate) fn parse(text: &str) -> Vec<Value> {
    text.lines().filter(|l| !l.trim().is_empty()).filter_map(|l| serde_json::from_str(l).ok()).collect()
}
