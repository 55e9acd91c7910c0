//! Converts documents to Markdown. All of this code parses untrusted input and runs in the confined child, except in
//! this crate's unit tests of single parsers.

mod archive;
mod ebook;
mod html;
mod page;
mod sheet;
mod slides;
mod word;
mod xml;

pub(crate) use archive::{Unpacked, unpack};

use toolyard_import::{Converted, Format, Limits, ParseFailure, text};

/// Maximum nesting of XML elements; deeper nesting is treated as an attack.
const MAX_XML_DEPTH: usize = 256;
/// Maximum compression ratio of an archive entry, beyond the first megabyte.
const MAX_RATIO: u64 = 200;
/// An entry may unpack to this many bytes before its ratio is checked.
const RATIO_FREE_BYTES: u64 = 1 << 20;
/// Maximum number of cells read from a sheet.
const MAX_SHEET_CELLS: usize = 500_000;

/// Converts a document to Markdown.
pub(crate) fn convert(format: Format, bytes: &[u8], limits: &Limits) -> Result<Converted, ParseFailure> {
    let no_text = || ParseFailure::new("this is not text");
    let converted = match format {
        Format::Markdown | Format::Text | Format::Code => {
            text::decode(bytes).map(|markdown| Converted { title: None, markdown }).ok_or_else(no_text)
        }
        Format::Html => text::decode_html(bytes).map(|page| html::convert(&page)).ok_or_else(no_text),
        Format::Pdf => page::convert(bytes),
        Format::Docx => word::convert(bytes, limits),
        Format::Sheet => sheet::convert(bytes, limits),
        Format::Pptx => slides::convert(bytes, limits),
        Format::Epub => ebook::convert(bytes, limits),
        Format::Zip => Err(ParseFailure::new("an archive is no document")),
    }?;
    converted.within(limits)
}
