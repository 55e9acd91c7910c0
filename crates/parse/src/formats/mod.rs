//! How a document becomes Markdown. Everything here reads bytes that others wrote and runs in the confined child, except in
//! this crate's own tests of single parsers.

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

/// Elements nested deeper than this are an attack.
const MAX_XML_DEPTH: usize = 256;
/// How many times larger than packed an archive's entry may become, beyond a first megabyte.
const MAX_RATIO: u64 = 200;
/// Bytes an entry may unpack to before its ratio is looked at.
const RATIO_FREE_BYTES: u64 = 1 << 20;
/// Rows and columns read of a sheet.
const MAX_SHEET_CELLS: usize = 500_000;

/// Turns a document into Markdown.
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
