//! The files of the web console, compiled in, and which paths are its pages.
//!
//! `build.rs` makes the table from `console/dist`. *Has no* sockets, requests or credentials: the gateway serves the files.

use std::{
    borrow::Cow,
    io::{self, Read as _},
};

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// The policy that the browser enforces for every page of the console: no code, style, connection or frame of anybody else,
/// and no HTML made from text.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types svelte-trusted-html";

/// The file that every page of the console begins with.
const INDEX: &str = "/index.html";

/// A file of the console.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    /// Its path, with a leading slash.
    pub path: &'static str,
    /// Its entity tag, with quotes: the hash of the content.
    pub etag: &'static str,
    /// Its content.
    pub content: Content,
}

/// The content of a file as the program has it.
#[derive(Debug, Clone, Copy)]
pub enum Content {
    /// As it is.
    Plain(&'static [u8]),
    /// Compressed, because that is smaller. The program has no plain copy.
    Packed {
        /// With Brotli.
        brotli: &'static [u8],
        /// With gzip, for browsers that take no Brotli over a connection without TLS.
        gzip: &'static [u8],
        /// Length of the plain content.
        length: usize,
    },
}

impl Content {
    /// The plain content.
    pub fn plain(&self) -> io::Result<Cow<'static, [u8]>> {
        match *self {
            Self::Plain(bytes) => Ok(Cow::Borrowed(bytes)),
            Self::Packed { gzip, length, .. } => {
                let mut bytes = Vec::with_capacity(length);
                flate2::read::GzDecoder::new(gzip).read_to_end(&mut bytes)?;
                Ok(Cow::Owned(bytes))
            }
        }
    }
}

impl Asset {
    /// The file with this path.
    pub fn find(path: &str) -> Option<&'static Self> {
        ASSETS.binary_search_by(|asset| asset.path.cmp(path)).ok().and_then(|at| ASSETS.get(at))
    }

    /// The file that a page begins with.
    pub fn page() -> Option<&'static Self> {
        Self::find(INDEX)
    }

    /// The type in the `Content-Type` header.
    pub fn content_type(&self) -> &'static str {
        match self.path.rsplit_once('.').map(|(_, extension)| extension) {
            Some("html") => "text/html; charset=utf-8",
            Some("js" | "mjs") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            Some("json" | "map") => "application/json; charset=utf-8",
            Some("webmanifest") => "application/manifest+json; charset=utf-8",
            Some("woff2") => "font/woff2",
            Some("png") => "image/png",
            Some("ico") => "image/x-icon",
            Some("txt") => "text/plain; charset=utf-8",
            _ => "application/octet-stream",
        }
    }

    /// Whether the name contains a hash of the content (`assets/index-B1x9aQ_d.js`), so that a copy never becomes stale.
    pub fn is_immutable(&self) -> bool {
        let Some(name) = self.path.strip_prefix("/assets/") else { return false };
        let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
        // A hash of eight characters may contain a hyphen itself, so it is counted from the end.
        let Some(hash) = stem.len().checked_sub(8).and_then(|at| stem.get(at..)) else { return false };
        stem.as_bytes().get(stem.len().saturating_sub(9)) == Some(&b'-')
            && hash.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    }
}

/// The hash of all files: changes with every build of the console.
pub fn version() -> &'static str {
    VERSION
}

/// Whether a path is a page of the console, which `index.html` shows.
pub fn is_page(path: &str) -> bool {
    let mut segments = path.strip_prefix('/').unwrap_or(path).split('/');
    let (first, second, third) = (segments.next().unwrap_or_default(), segments.next(), segments.next());
    if second == Some("") || third == Some("") || segments.next().is_some() {
        return false;
    }
    matches!(
        (first, second, third),
        ("" | "runs" | "plans" | "tools" | "settings" | "notes" | "memory" | "traces" | "why", None, _)
            | ("connect" | "more" | "pair", None, _)
            | ("runs", Some(_), Some("undo"))
            | ("plans", Some("new"), None)
            | ("runs" | "approve" | "tools" | "traces" | "servers" | "agents", Some(_), None)
            | ("settings", Some(_), _)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_of_the_contract_is_one_and_the_other_doors_are_not() {
        for page in [
            "/",
            "/runs",
            "/runs/0190",
            "/runs/0190/undo",
            "/plans",
            "/why",
            "/traces",
            "/more",
            "/approve/a1",
            "/plans/new",
            "/tools",
            "/tools/vault_read",
            "/notes",
            "/memory",
            "/traces/t",
            "/connect",
            "/servers/files",
            "/agents/agent:main:main",
            "/settings",
            "/settings/devices",
            "/settings/policy/rules",
            "/pair",
        ] {
            assert!(is_page(page), "{page}");
        }
        for other in [
            "/health",
            "/mcp",
            "/tools/invoke/x",
            "/runs/x/events",
            "/bridge",
            "/api/v1/x",
            "/approve",
            "/plans/old",
            "/runs/x/undo/y",
            "/runs/",
            "//",
            "/assets/x",
            "/pair/x",
            "/console/session",
            "/servers",
        ] {
            assert!(!is_page(other), "{other}");
        }
    }

    #[test]
    fn the_table_is_sorted_and_has_the_first_page() {
        assert!(ASSETS.is_sorted_by(|a, b| a.path < b.path));
        let page = Asset::page().expect("index.html is compiled in");
        assert_eq!(page.content_type(), "text/html; charset=utf-8");
        assert!(!page.is_immutable());
        assert_eq!(version().len(), 24);
    }

    #[test]
    fn packed_files_unpack_to_their_length_and_are_smaller() {
        let mut packed = 0;
        for asset in ASSETS {
            if let Content::Packed { brotli, gzip, length } = asset.content {
                assert_eq!(asset.content.plain().unwrap().len(), length, "{}", asset.path);
                assert!(brotli.len().max(gzip.len()) < length, "{}", asset.path);
                packed += 1;
            }
        }
        assert!(packed > 0);
    }

    #[test]
    fn only_names_with_a_hash_are_kept_for_ever() {
        let named = |path| Asset { path, etag: "", content: Content::Plain(b"") };
        for hashed in ["/assets/index-B1x9aQ_d.js", "/assets/a-12345-78.css"] {
            assert!(named(hashed).is_immutable(), "{hashed}");
        }
        for plain in ["/index.html", "/assets/index.js", "/assets/font-regular.woff2", "/x-B1x9aQ_d.js"] {
            assert!(!named(plain).is_immutable(), "{plain}");
        }
    }
}
