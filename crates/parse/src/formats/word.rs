//! Office Open XML text documents: paragraphs, headings by style, lists, tables. Deleted text of tracked changes is
//! dropped.

use super::{
    Converted, Limits, ParseFailure,
    archive::Package,
    xml::{Node, walk},
};
use std::collections::HashMap;

pub(super) fn convert(bytes: &[u8], limits: &Limits) -> Result<Converted, ParseFailure> {
    let mut package = Package::open(bytes, limits)?;
    let styles =
        package.part("word/styles.xml")?.map(|styles| heading_styles(&styles)).transpose()?.unwrap_or_default();
    let document = package.required("word/document.xml")?;
    let title = package.part("docProps/core.xml")?.map(|core| core_title(&core)).transpose()?.flatten();
    let mut writer = Writer { styles, ..Writer::default() };
    walk(&document, |node| writer.node(node))?;
    Ok(Converted { title, markdown: writer.out })
}

/// Heading levels by style id. Style names are the same in every language, but style ids are not.
fn heading_styles(styles: &str) -> Result<HashMap<String, usize>, ParseFailure> {
    let mut levels = HashMap::new();
    let mut id = String::new();
    walk(styles, |node| match node {
        Node::Open("style", attributes) => id = attributes.get("styleId").unwrap_or_default(),
        Node::Open("name", attributes) => {
            let name = attributes.get("val").unwrap_or_default().to_lowercase();
            if let Some(level) = level_of(&name) {
                levels.insert(id.clone(), level);
            }
        }
        Node::Open("outlineLvl", attributes) => {
            if let Some(level) =
                attributes.get("val").and_then(|level| level.parse::<usize>().ok()).filter(|level| *level < 6)
            {
                levels.entry(id.clone()).or_insert(level + 1);
            }
        }
        _ => {}
    })?;
    Ok(levels)
}

fn level_of(name: &str) -> Option<usize> {
    if name == "title" {
        return Some(1);
    }
    let number = name.strip_prefix("heading")?.trim();
    number.parse::<usize>().ok().filter(|level| (1..=9).contains(level)).map(|level| level.min(6))
}

/// The title in the document's properties.
pub(super) fn core_title(core: &str) -> Result<Option<String>, ParseFailure> {
    let (mut inside, mut title) = (false, String::new());
    walk(core, |node| match node {
        Node::Open("title", _) => inside = true,
        Node::Close("title") => inside = false,
        Node::Text(text) if inside => title.push_str(text),
        _ => {}
    })?;
    Ok(Some(title.trim().to_owned()).filter(|title| !title.is_empty()))
}

#[derive(Default)]
struct Writer {
    styles: HashMap<String, usize>,
    out: String,
    paragraph: String,
    heading: usize,
    list: Option<usize>,
    in_text: bool,
    /// Cell texts of the current rows, one entry per nested table; a nested table is written into its cell.
    rows: Vec<Vec<String>>,
    tables: usize,
    /// Number of rows written of the current table.
    written: usize,
}

impl Writer {
    fn node(&mut self, node: Node<'_>) {
        match node {
            Node::Open("p", _) => (self.heading, self.list) = (0, None),
            Node::Open("pStyle", attributes) => {
                let id = attributes.get("val").unwrap_or_default();
                self.heading = self.styles.get(&id).copied().or_else(|| level_of(&id.to_lowercase())).unwrap_or(0);
            }
            Node::Open("outlineLvl", attributes) => {
                if let Some(level) =
                    attributes.get("val").and_then(|level| level.parse::<usize>().ok()).filter(|level| *level < 6)
                {
                    self.heading = level + 1;
                }
            }
            Node::Open("ilvl", attributes) => {
                self.list = Some(attributes.get("val").and_then(|level| level.parse().ok()).unwrap_or(0))
            }
            Node::Open("numPr", _) => self.list = self.list.or(Some(0)),
            Node::Open("t", _) => self.in_text = true,
            Node::Close("t") => self.in_text = false,
            Node::Open("tab", _) => self.paragraph.push('\t'),
            Node::Open("br" | "cr", _) => self.paragraph.push('\n'),
            Node::Text(text) if self.in_text => self.paragraph.push_str(text),
            Node::Close("p") => self.end_paragraph(),
            Node::Open("tbl", _) => {
                self.tables += 1;
                self.written = 0;
            }
            Node::Close("tbl") => {
                self.tables = self.tables.saturating_sub(1);
                self.out.push('\n');
            }
            Node::Open("tr", _) if self.tables == 1 => self.rows.push(Vec::new()),
            Node::Open("tc", _) if self.tables == 1 => {
                if let Some(row) = self.rows.last_mut() {
                    row.push(String::new());
                }
            }
            Node::Close("tr") if self.tables == 1 => {
                if let Some(row) = self.rows.pop() {
                    table_row(&mut self.out, &row, self.written == 0);
                    self.written += 1;
                }
            }
            _ => {}
        }
    }

    fn end_paragraph(&mut self) {
        let text = std::mem::take(&mut self.paragraph);
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        if let Some(cell) = self.rows.last_mut().and_then(|row| row.last_mut()) {
            if !cell.is_empty() {
                cell.push(' ');
            }
            cell.push_str(text);
            return;
        }
        match (self.heading, self.list) {
            (1.., _) => {
                self.out.push('\n');
                self.out.push_str(&"#".repeat(self.heading));
                self.out.push(' ');
                self.out.push_str(&text.replace('\n', " "));
                self.out.push_str("\n\n");
            }
            (_, Some(level)) => {
                self.out.push_str(&"  ".repeat(level.min(8)));
                self.out.push_str("- ");
                self.out.push_str(&text.replace('\n', " "));
                self.out.push('\n');
            }
            _ => {
                self.out.push_str(text);
                self.out.push_str("\n\n");
            }
        }
    }
}

/// Appends a row of a Markdown table, and after the first row the separator line.
pub(super) fn table_row(out: &mut String, cells: &[String], first: bool) {
    if cells.is_empty() {
        return;
    }
    out.push('|');
    for cell in cells {
        out.push(' ');
        out.push_str(&cell.replace('|', "\\|").replace(['\n', '\r'], " "));
        out.push_str(" |");
    }
    out.push('\n');
    if first {
        out.push('|');
        cells.iter().for_each(|_| out.push_str(" --- |"));
        out.push('\n');
    }
}
