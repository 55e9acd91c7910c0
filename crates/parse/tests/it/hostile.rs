//! Malicious files fail quickly, with a reason and without harm.

use crate::{import, made, paths, upload, whole};
use toolyard_import::{ImportError, Limits, Options, Source};

fn failure(result: Result<toolyard_import::Imported, ImportError>) -> String {
    match result.unwrap_err() {
        ImportError::Parse { failure, .. } => failure.0,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_zip_bomb_is_noticed_before_it_goes_off() {
    let bomb = made::zip(&[("a.txt", &vec![0u8; 24 << 20])]);
    assert!(bomb.len() < 1 << 20);
    let options = Options { limits: Limits { file_bytes: 1 << 30, ..Limits::default() }, ..Options::default() };
    let refused = failure(import(Source::Upload { name: "bomb.zip".to_owned(), bytes: bomb.clone() }, &options).await);
    assert!(refused.contains("zip bomb"), "{refused}");
    // A zip bomb inside an Office file.
    let document = made::zip(&[("word/document.xml", &vec![b' '; 24 << 20])]);
    assert!(failure(upload("bomb.docx", document).await).contains("zip bomb"));
}

#[tokio::test]
async fn paths_that_lead_out_of_an_archive_are_passed_over() {
    let archive = made::zip(&[
        ("../../evil.md", b"# Evil"),
        ("/abs.md", b"# Abs"),
        ("docs/good.md", b"# Good"),
        ("docs/.hidden.md", b"x"),
    ]);
    let imported = upload("docs.zip", archive).await.unwrap();
    assert_eq!(paths(&imported), ["good/good.md"]);
    let skipped: Vec<&str> = imported.report.skipped_files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(skipped, ["../../evil.md", "/abs.md", ".hidden.md"]);
}

#[tokio::test]
async fn deep_and_endless_xml_is_refused() {
    let deep = made::docx(&"<w:p>".repeat(200_000));
    assert!(failure(upload("deep.docx", deep).await).contains("nested too deeply"));
    let lol = r#"<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "lollollollol"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]><w:document xmlns:w="w"><w:p><w:r><w:t>before &c; after</w:t></w:r></w:p></w:document>"#;
    let text = whole(&upload("lol.docx", made::zip(&[("word/document.xml", lol.as_bytes())])).await.unwrap());
    assert!(text.contains("before") && !text.contains("lol"), "{text}");
}

#[tokio::test]
async fn cut_off_and_false_files_say_what_is_wrong() {
    for (name, bytes) in [
        ("cut.pdf", {
            let whole = made::pdf(&["Text on a page."]);
            whole[..whole.len() / 3].to_vec()
        }),
        ("false.pdf", b"PK\x03\x04 not a pdf".to_vec()),
        ("cut.docx", {
            let whole = made::docx("<w:p/>");
            whole[..whole.len() / 2].to_vec()
        }),
        ("cut.xlsx", {
            let whole = made::xlsx();
            whole[..whole.len() / 2].to_vec()
        }),
        ("cut.pptx", {
            let whole = made::pptx();
            whole[..whole.len() / 2].to_vec()
        }),
        ("cut.epub", {
            let whole = made::epub();
            whole[..whole.len() / 2].to_vec()
        }),
        ("false.zip", b"not a zip".to_vec()),
        ("empty.docx", made::zip(&[("x", b"")])),
        ("nothing.html", b"<script>x</script>".to_vec()),
        ("binary.md", vec![0, 1, 2, 3, 255, 254, 0, 7]),
    ] {
        let why = failure(upload(name, bytes).await);
        assert!(!why.is_empty() && why.len() < 400, "{name}: {why}");
    }
}

#[tokio::test]
async fn every_cut_of_a_pdf_ends_without_harm() {
    let whole = made::pdf(&["One page."]);
    for at in (0..whole.len()).step_by(61) {
        let mut broken = whole.clone();
        broken[at] = broken[at].wrapping_add(128);
        let _ = upload("x.pdf", broken).await;
    }
}

#[tokio::test]
async fn one_bad_file_does_not_spoil_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("good.md"), "# Good").unwrap();
    std::fs::write(folder.path().join("bad.pdf"), "no pdf").unwrap();
    std::fs::write(folder.path().join("photo.png"), "x").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link.md")).unwrap();
    let imported = import(Source::Path(folder.path().to_owned()), &Options::default()).await.unwrap();
    assert_eq!(paths(&imported), ["good/good.md"]);
    let report = &imported.report;
    assert_eq!((report.failed_files.len(), report.unsupported_files.len(), report.skipped_files.len()), (1, 1, 1));
    assert_eq!(imported.warnings, ["1 of 4 files could not be read"]);
}

#[tokio::test]
async fn a_parser_gets_no_more_time_than_it_may_have() {
    // A timeout of 0 ms always expires.
    let options = Options { limits: Limits { parse_ms: 0, ..Limits::default() }, ..Options::default() };
    let text = format!("<p>{}", "<b>x</b>".repeat(3_000_000));
    let why =
        failure(import(Source::Upload { name: "slow.html".to_owned(), bytes: text.into_bytes() }, &options).await);
    assert!(why.contains("longer than 0 ms") || why.contains("more memory or time"), "{why}");
}
