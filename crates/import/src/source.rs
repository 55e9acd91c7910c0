//! Import sources.

use crate::importer::ImportError;
use std::path::PathBuf;

/// Hosts on which a path of two segments is a repository.
const CODE_HOSTS: [&str; 6] = ["github.com", "gitlab.com", "bitbucket.org", "codeberg.org", "gitee.com", "git.sr.ht"];

/// A Git repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitSource {
    /// The URL of the repository.
    pub url: String,
    /// A branch or tag; `None` for the default branch.
    pub reference: Option<String>,
}

/// What to import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A local file or folder.
    Path(PathBuf),
    /// Uploaded bytes with a file name. A zip archive is unpacked.
    Upload {
        /// The file name.
        name: String,
        /// The content.
        bytes: Vec<u8>,
    },
    /// A web page or a file on a web server.
    Url(String),
    /// A Git repository.
    Git(GitSource),
}

impl Source {
    /// Recognises a source in user input: an HTTP URL, a repository, or else a path.
    pub fn of_text(text: &str) -> Result<Self, ImportError> {
        let text = text.trim();
        if text.is_empty() || text.contains(['\0', '\n']) {
            return Err(ImportError::Invalid("there is nothing to import".to_owned()));
        }
        let lower = text.to_ascii_lowercase();
        if lower.starts_with("git@") || lower.starts_with("ssh://") || lower.starts_with("git://") {
            return Ok(Self::Git(GitSource { url: text.to_owned(), reference: None }));
        }
        if lower.starts_with("http://") || lower.starts_with("https://") {
            return Ok(repository(text).map_or_else(|| Self::Url(text.to_owned()), Self::Git));
        }
        if let Some((scheme, _)) = lower.split_once("://") {
            return Err(ImportError::Invalid(format!(
                "{scheme} addresses cannot be imported; use http, https, ssh or git"
            )));
        }
        Ok(Self::Path(PathBuf::from(text)))
    }
}

/// A repository by its web URL: one that ends in `.git`, or a project page on a known host.
fn repository(text: &str) -> Option<GitSource> {
    let url = reqwest::Url::parse(text).ok()?;
    let path = url.path().trim_matches('/');
    if path.ends_with(".git") {
        return Some(GitSource { url: text.to_owned(), reference: None });
    }
    let host = url.host_str()?.trim_start_matches("www.");
    if !CODE_HOSTS.contains(&host) || url.query().is_some() {
        return None;
    }
    let parts: Vec<&str> = path.split('/').collect();
    let (reference, parts) = match parts[..] {
        [owner, name] => (None, [owner, name]),
        [owner, name, "tree", reference] => (Some(reference.to_owned()), [owner, name]),
        [owner, name, "-", "tree", reference] => (Some(reference.to_owned()), [owner, name]),
        _ => return None,
    };
    let mut repository = url.clone();
    repository.set_path(&parts.join("/"));
    repository.set_fragment(None);
    Some(GitSource { url: repository.to_string(), reference })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_meant_is_understood() {
        let git = |url: &str, reference: Option<&str>| {
            Source::Git(GitSource { url: url.to_owned(), reference: reference.map(str::to_owned) })
        };
        for (text, source) in [
            ("/home/me/docs", Source::Path("/home/me/docs".into())),
            ("https://example.org/a/b", Source::Url("https://example.org/a/b".to_owned())),
            ("https://example.org/r.git", git("https://example.org/r.git", None)),
            ("https://github.com/o/r", git("https://github.com/o/r", None)),
            ("https://github.com/o/r/tree/dev", git("https://github.com/o/r", Some("dev"))),
            ("https://github.com/o/r/blob/main/a.md", Source::Url("https://github.com/o/r/blob/main/a.md".to_owned())),
            ("git@example.org:o/r.git", git("git@example.org:o/r.git", None)),
        ] {
            assert_eq!(Source::of_text(text).unwrap(), source, "{text}");
        }
        for bad in ["", "  ", "file:///etc/passwd", "ftp://x/y"] {
            assert!(Source::of_text(bad).is_err(), "{bad}");
        }
    }
}
