//! File formats, and the conversion of text files. The parsers of all other formats run in the program `toolyard-parse`
//! (`crates/parse`), which [`crate::parser`] starts.

use crate::{limits::Limits, names::extension, text};
use serde::{Deserialize, Serialize};

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Markdown.
    Markdown,
    /// Plain text.
    Text,
    /// Source code and text data, kept unchanged.
    Code,
    /// A web page.
    Html,
    /// Portable Document Format.
    Pdf,
    /// A text document (Office Open XML).
    Docx,
    /// A spreadsheet: xlsx, xlsm, xlsb, xls, ods.
    Sheet,
    /// A presentation (Office Open XML).
    Pptx,
    /// An electronic book.
    Epub,
    /// A zip archive of other files.
    Zip,
}

impl Format {
    /// The format by file name; `None` for files that cannot be imported.
    pub fn of_name(name: &str) -> Option<Self> {
        let bare = name.rsplit('/').next().unwrap_or(name);
        Some(match extension(bare).as_str() {
            "md" | "markdown" | "mdx" | "mdown" | "mkd" => Self::Markdown,
            "txt" | "text" | "rst" | "adoc" | "asciidoc" | "org" | "log" | "tex" => Self::Text,
            "html" | "htm" | "xhtml" => Self::Html,
            "pdf" => Self::Pdf,
            "docx" | "docm" => Self::Docx,
            "xlsx" | "xlsm" | "xlsb" | "xls" | "ods" => Self::Sheet,
            "pptx" | "pptm" => Self::Pptx,
            "epub" => Self::Epub,
            "zip" => Self::Zip,
            other if CODE.binary_search(&other).is_ok() => Self::Code,
            "" if CODE_NAMES.binary_search(&bare.to_lowercase().as_str()).is_ok() => Self::Code,
            _ => return None,
        })
    }

    /// The format by media type (`Content-Type`).
    pub fn of_media_type(media_type: &str) -> Option<Self> {
        let bare = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        Some(match bare.as_str() {
            "text/html" | "application/xhtml+xml" => Self::Html,
            "text/markdown" | "text/x-markdown" => Self::Markdown,
            "application/pdf" => Self::Pdf,
            "application/zip" | "application/x-zip-compressed" => Self::Zip,
            "application/epub+zip" => Self::Epub,
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document" => Self::Docx,
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" | "application/vnd.ms-excel" => {
                Self::Sheet
            }
            "application/vnd.openxmlformats-officedocument.presentationml.presentation" => Self::Pptx,
            "application/json"
            | "application/xml"
            | "text/xml"
            | "application/yaml"
            | "text/yaml"
            | "text/css"
            | "text/javascript"
            | "application/javascript"
            | "text/csv" => Self::Code,
            other if other.starts_with("text/") => Self::Text,
            _ => return None,
        })
    }

    /// The parser's name in import reports.
    pub fn parser(self) -> &'static str {
        match self {
            Self::Markdown => "MarkdownParser",
            Self::Text => "TextParser",
            Self::Code => "CodeParser",
            Self::Html => "HTMLParser",
            Self::Pdf => "PDFParser",
            Self::Docx => "WordParser",
            Self::Sheet => "ExcelParser",
            Self::Pptx => "PowerPointParser",
            Self::Epub => "EPubParser",
            Self::Zip => "ZipParser",
        }
    }

    /// Whether the parser runs in a confined process, because a crafted file could attack it.
    pub fn is_confined(self) -> bool {
        !matches!(self, Self::Markdown | Self::Text | Self::Code)
    }
}

/// Extensions of source code and text data. Sorted.
const CODE: [&str; 105] = [
    "asm",
    "astro",
    "awk",
    "bash",
    "bat",
    "bzl",
    "c",
    "cc",
    "cfg",
    "cjs",
    "clj",
    "cljs",
    "cmake",
    "conf",
    "cpp",
    "cs",
    "css",
    "csv",
    "cts",
    "cu",
    "cxx",
    "d",
    "dart",
    "diff",
    "el",
    "elm",
    "env",
    "erl",
    "ex",
    "exs",
    "fish",
    "fs",
    "fsx",
    "go",
    "gradle",
    "graphql",
    "groovy",
    "h",
    "hcl",
    "hh",
    "hpp",
    "hs",
    "ini",
    "ipynb",
    "java",
    "jl",
    "js",
    "json",
    "jsonc",
    "jsonl",
    "jsx",
    "kt",
    "kts",
    "less",
    "lisp",
    "lock",
    "lua",
    "m",
    "mjs",
    "ml",
    "mli",
    "mm",
    "mts",
    "nim",
    "nix",
    "pas",
    "patch",
    "php",
    "pl",
    "pm",
    "properties",
    "proto",
    "ps1",
    "py",
    "pyi",
    "r",
    "rb",
    "rs",
    "sass",
    "scala",
    "scm",
    "scss",
    "sh",
    "sol",
    "sql",
    "sv",
    "svelte",
    "swift",
    "tf",
    "toml",
    "ts",
    "tsv",
    "tsx",
    "v",
    "vb",
    "vhdl",
    "vim",
    "vue",
    "wat",
    "xml",
    "xsl",
    "yaml",
    "yml",
    "zig",
    "zsh",
];

/// Names of code files without an extension. Sorted.
const CODE_NAMES: [&str; 8] =
    ["cmakelists", "dockerfile", "gemfile", "jenkinsfile", "justfile", "makefile", "rakefile", "vagrantfile"];

/// Why a document could not be turned into text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseFailure(pub String);

impl ParseFailure {
    /// Creates a failure with this reason.
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// A document converted to Markdown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    /// The document's own title, if it has one.
    pub title: Option<String>,
    /// The document as Markdown.
    pub markdown: String,
}

impl Converted {
    /// Checks that the document has text and is within the size limit.
    pub fn within(self, limits: &Limits) -> Result<Self, ParseFailure> {
        if self.markdown.len() > limits.text_bytes {
            return Err(ParseFailure::new(format!("its text is larger than {} bytes", limits.text_bytes)));
        }
        if !self.markdown.chars().any(char::is_alphanumeric) {
            return Err(ParseFailure::new("there is no text in it"));
        }
        Ok(self)
    }
}

/// Decodes Markdown, plain text and code; the text is unchanged.
pub(crate) fn plain(bytes: &[u8], limits: &Limits) -> Result<Converted, ParseFailure> {
    let markdown = text::decode(bytes).ok_or_else(|| ParseFailure::new("this is not text"))?;
    Converted { title: None, markdown }.within(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_name() {
        assert!(CODE.is_sorted() && CODE_NAMES.is_sorted());
        assert_eq!(Format::of_name("a/b.MD"), Some(Format::Markdown));
        assert_eq!(Format::of_name("main.rs"), Some(Format::Code));
        assert_eq!(Format::of_name("dir/Dockerfile"), Some(Format::Code));
        assert_eq!(Format::of_name("photo.png"), None);
        assert_eq!(Format::of_media_type("text/html; charset=utf-8"), Some(Format::Html));
    }
}
