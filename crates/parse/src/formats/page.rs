//! PDF: the text of each page, with lines joined to paragraphs.

use super::{Converted, ParseFailure};

pub(super) fn convert(bytes: &[u8]) -> Result<Converted, ParseFailure> {
    if !bytes.get(..1_024).unwrap_or(bytes).windows(5).any(|five| five == b"%PDF-") {
        return Err(ParseFailure::new("it does not begin as a PDF does"));
    }
    // The PDF library panics on some broken files. Catching the panic allows a better error message than the end of the
    // process.
    let read = std::panic::catch_unwind(|| pdf_extract::extract_text_from_mem_by_pages(bytes));
    let pages = match read {
        Ok(Ok(pages)) => pages,
        Ok(Err(error)) => return Err(ParseFailure::new(format!("it is no readable PDF: {error}"))),
        Err(_) => return Err(ParseFailure::new("it is no readable PDF")),
    };
    let many = pages.iter().filter(|page| !page.trim().is_empty()).count() > 1;
    let mut markdown = String::new();
    for (number, page) in pages.iter().enumerate() {
        let text = paragraphs(page);
        if text.is_empty() {
            continue;
        }
        if many {
            markdown.push_str(&format!("## Page {}\n\n", number + 1));
        }
        markdown.push_str(&text);
        markdown.push_str("\n\n");
    }
    Ok(Converted { title: None, markdown })
}

/// Joins the lines of a page to paragraphs: a blank line, or a short line at the end of a sentence, ends a paragraph.
/// Words hyphenated at a line end are joined.
fn paragraphs(page: &str) -> String {
    let longest = page.lines().map(|line| line.trim().chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    let mut open = false;
    for line in page.lines() {
        // A page's text must not create Markdown headings.
        let line = line.trim().trim_start_matches('#').trim_start();
        if line.is_empty() {
            open = false;
            continue;
        }
        if !out.is_empty() {
            if !open {
                out.push_str("\n\n");
            } else if out.ends_with('-')
                && line.starts_with(char::is_lowercase)
                && out.chars().rev().nth(1).is_some_and(char::is_alphabetic)
            {
                out.pop();
            } else {
                out.push(' ');
            }
        }
        out.push_str(line);
        let short = line.chars().count() * 10 < longest * 7;
        open = !(short && line.ends_with(['.', '!', '?', ':', '。']));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_paragraphs() {
        assert_eq!(
            paragraphs("A long line that goes on and is hyphen-\nated here.\n\nNext one.\n"),
            "A long line that goes on and is hyphenated here.\n\nNext one."
        );
    }
}
