//! Markdown as far as edits need it: the positions of headings, blocks, front matter and links, in bytes. A note is
//! never parsed into a tree and written back, so that everything outside the edit stays unchanged.

pub(crate) mod frontmatter;
pub(crate) mod headings;
pub(crate) mod links;
pub(crate) mod scan;
pub(crate) mod yaml;
