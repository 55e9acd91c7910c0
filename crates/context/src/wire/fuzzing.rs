//! A window into private parsers for the fuzz targets (`crates/fuzz-targets`). Not part of the interface.

use crate::wire::http::upload;

/// The name and the bytes of the part called `file` of a `multipart/form-data` body.
pub fn multipart_file<'a>(content_type: &str, body: &'a [u8]) -> Option<(String, &'a [u8])> {
    upload::file(content_type, body).ok().map(|upload| (upload.name, upload.bytes))
}
