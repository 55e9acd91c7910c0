//! EPUB books: the chapters in spine order, each parsed as a web page.

use super::{
    Converted, Limits, ParseFailure,
    archive::Package,
    html,
    slides::resolve,
    xml::{Node, walk},
};
use std::collections::HashMap;

pub(super) fn convert(bytes: &[u8], limits: &Limits) -> Result<Converted, ParseFailure> {
    let mut package = Package::open(bytes, limits)?;
    let mut opf = None;
    walk(&package.required("META-INF/container.xml")?, |node| {
        if let Node::Open("rootfile", attributes) = node
            && opf.is_none()
        {
            opf = attributes.get("full-path");
        }
    })?;
    let opf = opf.ok_or_else(|| ParseFailure::new("its container names no book"))?;
    let book = package.required(&opf)?;
    let folder = opf.rsplit_once('/').map_or("", |(folder, _)| folder);
    let (mut title, mut in_title) = (String::new(), false);
    let mut chapters: HashMap<String, String> = HashMap::new();
    let mut spine: Vec<String> = Vec::new();
    walk(&book, |node| match node {
        Node::Open("title", _) if title.is_empty() => in_title = true,
        Node::Close("title") => in_title = false,
        Node::Text(text) if in_title => title.push_str(text),
        Node::Open("item", attributes) => {
            let kind = attributes.get("media-type").unwrap_or_default();
            if let (Some(id), Some(href)) = (attributes.get("id"), attributes.get("href"))
                && (kind.contains("html") || kind.is_empty())
            {
                chapters.insert(id, href);
            }
        }
        Node::Open("itemref", attributes) => spine.extend(attributes.get("idref")),
        _ => {}
    })?;
    let mut markdown = String::new();
    for id in spine.iter().take(limits.files) {
        let Some(href) = chapters.get(id) else { continue };
        let path = resolve(folder, &percent_decoded(href.split('#').next().unwrap_or(href)));
        let Some(page) = package.part(&path)? else { continue };
        let chapter = html::convert(&page);
        markdown.push_str(chapter.markdown.trim());
        markdown.push_str("\n\n");
        if markdown.len() > limits.text_bytes {
            return Err(ParseFailure::new(format!("its text is larger than {} bytes", limits.text_bytes)));
        }
    }
    Ok(Converted { title: Some(title.trim().to_owned()).filter(|title| !title.is_empty()), markdown })
}

/// Decodes percent-encoded bytes such as `%20`.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = (*first == b'%').then(|| after.get(..2)).flatten();
        let code = code
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
