//! Markdown as far as edits need it: where headings, blocks, front matter and links are, in bytes. Nothing is ever
//! parsed into a tree and written back, so what an edit does not name stays as it is.

pub(crate) mod frontmatter;
pub(crate) mod headings;
pub(crate) mod links;
pub(crate) mod scan;
pub(crate) mod yaml;
