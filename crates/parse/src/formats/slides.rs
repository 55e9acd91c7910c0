//! Office Open XML presentations: a section for each slide in presentation order, with its notes.

use super::{
    Converted, Limits, ParseFailure,
    archive::Package,
    word::{core_title, table_row},
    xml::{Node, walk},
};
use std::collections::HashMap;

pub(super) fn convert(bytes: &[u8], limits: &Limits) -> Result<Converted, ParseFailure> {
    let mut package = Package::open(bytes, limits)?;
    let title = package.part("docProps/core.xml")?.map(|core| core_title(&core)).transpose()?.flatten();
    let presentation = package.required("ppt/presentation.xml")?;
    let targets = relations(&package.required("ppt/_rels/presentation.xml.rels")?)?;
    let mut order: Vec<String> = Vec::new();
    walk(&presentation, |node| {
        if let Node::Open("sldId", attributes) = node
            // Both `id` (the slide's number) and `r:id` (the relation) have this local name. The one that is a known
            // relation is used.
            && let Some((target, _)) = attributes.all("id").iter().find_map(|id| targets.get(id))
        {
            order.push(target.clone());
        }
    })?;
    let mut markdown = String::new();
    for (number, target) in order.iter().enumerate().take(limits.files) {
        let path = resolve("ppt/", target);
        let Some(slide) = package.part(&path)? else { continue };
        let read = read_slide(&slide)?;
        let heading = if read.title.is_empty() {
            format!("Slide {}", number + 1)
        } else {
            format!("Slide {}: {}", number + 1, read.title)
        };
        markdown.push_str(&format!("## {heading}\n\n{}\n", read.body));
        if let Some(notes) = notes_of(&mut package, &path)? {
            markdown.push_str(&format!("Notes: {notes}\n\n"));
        }
    }
    Ok(Converted { title, markdown })
}

/// Targets and types of relations, by id.
fn relations(text: &str) -> Result<HashMap<String, (String, String)>, ParseFailure> {
    let mut found = HashMap::new();
    walk(text, |node| {
        if let Node::Open("Relationship", attributes) = node
            && let (Some(id), Some(target)) = (attributes.get("Id"), attributes.get("Target"))
        {
            found.insert(id, (target, attributes.get("Type").unwrap_or_default()));
        }
    })?;
    Ok(found)
}

/// Resolves a target relative to a folder of the archive.
pub(super) fn resolve(folder: &str, target: &str) -> String {
    if let Some(whole) = target.strip_prefix('/') {
        return whole.to_owned();
    }
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn notes_of(package: &mut Package<'_>, slide: &str) -> Result<Option<String>, ParseFailure> {
    let Some((folder, name)) = slide.rsplit_once('/') else { return Ok(None) };
    let Some(rels) = package.part(&format!("{folder}/_rels/{name}.rels"))? else { return Ok(None) };
    let targets = relations(&rels)?;
    let Some((target, _)) = targets.values().find(|(_, kind)| kind.ends_with("/notesSlide")) else { return Ok(None) };
    let Some(notes) = package.part(&resolve(folder, target))? else { return Ok(None) };
    // A notes page repeats the slide's number and image; its body is the text that the author wrote.
    let read = read_slide(&notes)?;
    let text = read.body.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(Some(text).filter(|text| text.chars().any(char::is_alphabetic)))
}

#[derive(Default)]
struct Slide {
    title: String,
    body: String,
}

fn read_slide(text: &str) -> Result<Slide, ParseFailure> {
    let mut slide = Slide::default();
    let (mut in_title, mut passing, mut in_text) = (false, false, false);
    let mut paragraph = String::new();
    let mut row: Option<Vec<String>> = None;
    let mut rows = 0;
    walk(text, |node| match node {
        Node::Open("sp", _) => (in_title, passing) = (false, false),
        Node::Open("ph", attributes) => {
            let kind = attributes.get("type").unwrap_or_default();
            in_title = matches!(kind.as_str(), "title" | "ctrTitle");
            passing = matches!(kind.as_str(), "sldNum" | "dt" | "ftr" | "hdr" | "sldImg");
        }
        Node::Open("t", _) => in_text = true,
        Node::Close("t") => in_text = false,
        Node::Text(text) if in_text && !passing => paragraph.push_str(text),
        Node::Open("br", _) => paragraph.push(' '),
        Node::Open("tbl", _) => rows = 0,
        Node::Open("tr", _) => row = Some(Vec::new()),
        Node::Open("tc", _) => {
            if let Some(row) = &mut row {
                row.push(String::new());
            }
        }
        Node::Close("tr") => {
            if let Some(row) = row.take() {
                table_row(&mut slide.body, &row, rows == 0);
                rows += 1;
            }
        }
        Node::Close("p") => {
            let text = std::mem::take(&mut paragraph);
            let text = text.trim();
            if text.is_empty() {
                return;
            }
            if let Some(cell) = row.as_mut().and_then(|row| row.last_mut()) {
                if !cell.is_empty() {
                    cell.push(' ');
                }
                cell.push_str(text);
            } else if in_title {
                if !slide.title.is_empty() {
                    slide.title.push(' ');
                }
                slide.title.push_str(text);
            } else {
                slide.body.push_str("- ");
                slide.body.push_str(text);
                slide.body.push('\n');
            }
        }
        _ => {}
    })?;
    Ok(slide)
}
