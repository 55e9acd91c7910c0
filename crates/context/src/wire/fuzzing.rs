//! Access to private parsers for the fuzz targets (`crates/fuzz-targets`). Not part of the public interface.

use crate::wire::http::upload;

/// The file name and content of the part `file` of a `multipart/form-data` body.
pub fn multipart_file<'a>(content_type: &str, body: &'a [u8]) -> Option<(String, &'a [u8])> {
    upload::file(content_type, body).ok().map(|upload| (upload.name, upload.bytes))
}
