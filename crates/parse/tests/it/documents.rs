//! Documents of each format are converted to Markdown with the same words.

use crate::{made, paths, upload, whole};
use toolyard_import::ImportError;

#[tokio::test]
async fn markdown_is_kept_as_it_is() {
    let imported = upload("widget.md", b"# Widget\n\nTurns left.\n".to_vec()).await.unwrap();
    assert_eq!((imported.name.as_str(), imported.single), ("widget", true));
    assert_eq!(paths(&imported), ["widget.md"]);
    assert_eq!(whole(&imported), "# Widget\n\nTurns left.\n");
    assert_eq!(imported.report.processed_files[0].parser.as_deref(), Some("MarkdownParser"));
}

#[tokio::test]
async fn a_long_text_is_cut_by_its_headings() {
    let text = format!("# Guide\n\n## Install\n\n{}\n\n## Use\n\n{}\n", "step ".repeat(1_100), "way ".repeat(1_100));
    let imported = upload("guide.md", text.into_bytes()).await.unwrap();
    assert_eq!(imported.name, "guide");
    assert!(paths(&imported).contains(&"Install.md") && paths(&imported).contains(&"Use.md"), "{:?}", paths(&imported));
}

#[tokio::test]
async fn a_web_page_loses_what_is_around_it() {
    let page = b"<html><head><title>Lamps</title></head><body><nav>menu</nav><h1>Lamps</h1><p>They glow.</p><script>x()</script></body></html>";
    let imported = upload("page.html", page.to_vec()).await.unwrap();
    assert_eq!(imported.name, "Lamps");
    assert_eq!(whole(&imported), "# Lamps\n\nThey glow.\n");
}

#[tokio::test]
async fn a_text_document_keeps_headings_lists_and_tables() {
    let body = r#"<w:p><w:pPr><w:pStyle w:val="berschrift1"/></w:pPr><w:r><w:t>Bericht</w:t></w:r></w:p>
        <w:p><w:r><w:t xml:space="preserve">Erster </w:t></w:r><w:r><w:t>Absatz &#8211; gut.</w:t></w:r><w:del><w:r><w:delText>weg</w:delText></w:r></w:del></w:p>
        <w:p><w:pPr><w:numPr><w:ilvl w:val="1"/></w:numPr></w:pPr><w:r><w:t>Punkt</w:t></w:r></w:p>
        <w:tbl><w:tr><w:tc><w:p><w:r><w:t>k</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>v</w:t></w:r></w:p></w:tc></w:tr><w:tr><w:tc><w:p><w:r><w:t>1</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>2</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"#;
    let text = whole(&upload("bericht.docx", made::docx(body)).await.unwrap());
    assert!(
        text.contains("# Bericht\n\nErster Absatz – gut.\n\n  - Punkt\n| k | v |\n| --- | --- |\n| 1 | 2 |\n"),
        "{text}"
    );
    assert!(!text.contains("weg"));
}

#[tokio::test]
async fn a_workbook_becomes_tables() {
    let text = whole(&upload("prices.xlsx", made::xlsx()).await.unwrap());
    assert!(text.contains("## Prices\n\n| Item | Price |\n| --- | --- |\n| Lamp \\| big | 12.5 |"), "{text}");
}

#[tokio::test]
async fn slides_come_in_order_with_their_notes() {
    let text = whole(&upload("talk.pptx", made::pptx()).await.unwrap());
    let (first, second) = (text.find("## Slide 1: Welcome").unwrap(), text.find("## Slide 2: Numbers").unwrap());
    assert!(
        first < second
            && text.contains("- to the show")
            && text.contains("Notes: - Smile first.")
            && text.contains("forty & two"),
        "{text}"
    );
}

#[tokio::test]
async fn a_book_is_read_along_its_spine() {
    let text = whole(&upload("lamp.epub", made::epub()).await.unwrap());
    assert!(text.starts_with("# Dawn\n\nIt was early.") && text.contains("# Dusk\n\nIt was late."), "{text}");
}

#[tokio::test]
async fn a_pdf_is_read_page_by_page() {
    let imported = upload("report.pdf", made::pdf(&["The first page says hello.", "The second page\nsays goodbye."]))
        .await
        .unwrap();
    let text = whole(&imported);
    assert!(
        text.contains("## Page 1\n\nThe first page says hello.")
            && text.contains("## Page 2")
            && text.contains("says goodbye."),
        "{text}"
    );
    assert_eq!(imported.report.processed_files[0].parser.as_deref(), Some("PDFParser"));
}

#[tokio::test]
async fn code_keeps_its_form_and_unknown_kinds_are_named() {
    let imported = upload("main.rs", b"fn main() {}\n".to_vec()).await.unwrap();
    assert_eq!((paths(&imported), whole(&imported).as_str()), (vec!["main.rs"], "fn main() {}\n"));
    assert_eq!(upload("photo.png", vec![1, 2, 3]).await.unwrap_err(), ImportError::Unsupported("photo.png".to_owned()));
}
