//! Import sources: folders, archives, web servers and repositories.

use crate::{import, made, paths, whole};
use std::{
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use toolyard_import::{GitSource, ImportError, Limits, Options, Source, fetch::NetworkRules};

fn private() -> Options {
    Options { network: NetworkRules { allow_private: true, ..NetworkRules::default() }, ..Options::default() }
}

fn write(root: &Path, path: &str, text: &str) {
    let place = root.join(path);
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::write(place, text).unwrap();
}

#[tokio::test]
async fn a_folder_keeps_its_tree_and_honours_ignores() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("My Docs");
    for (path, text) in [
        ("notes.md", "# Notes"),
        ("api/calls.md", "# Calls"),
        ("api/calls.txt", "also calls"),
        ("src/lib.rs", "pub fn x() {}"),
        ("node_modules/a/b.md", "# Never"),
        (".gitignore", "secret.md\n"),
        ("secret.md", "# Secret"),
        ("drafts/d.md", "# Draft"),
    ] {
        write(&root, path, text);
    }
    let options = Options { exclude: vec!["drafts/**".to_owned()], ..Options::default() };
    let imported = import(Source::Path(root.clone()), &options).await.unwrap();
    assert_eq!((imported.name.as_str(), imported.single), ("My_Docs", false));
    assert_eq!(paths(&imported), ["api/calls/calls.md", "api/calls_txt/calls.md", "notes/notes.md", "src/lib.rs"]);
    assert_eq!(imported.report.skipped_files[0].path, "drafts/d.md");
    let options =
        Options { include: vec!["*.md".to_owned()], flat: true, name: Some("other".to_owned()), ..Options::default() };
    let imported = import(Source::Path(root), &options).await.unwrap();
    assert_eq!(
        (imported.name.as_str(), paths(&imported)),
        ("other", vec!["calls/calls.md", "d/d.md", "notes/notes.md"])
    );
    let missing = import(Source::Path(folder.path().join("none")), &Options::default()).await;
    assert!(matches!(missing, Err(ImportError::NotFound(_))));
}

#[tokio::test]
async fn an_archive_is_a_folder() {
    let archive = made::zip(&[
        ("pack/a.md", b"# A"),
        ("pack/sub/b.docx", &made::docx("<w:p><w:r><w:t>Word here</w:t></w:r></w:p>")),
        ("pack/inner.zip", &made::zip(&[("x.md", b"x")])),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("pack.zip");
    std::fs::write(&place, archive).unwrap();
    let imported = import(Source::Path(place), &Options::default()).await.unwrap();
    assert_eq!((imported.name.as_str(), paths(&imported)), ("pack", vec!["a/a.md", "sub/b/b.md"]));
    assert!(whole(&imported).contains("Word here"));
    let named = Options { name: Some("v1.2".to_owned()), ..Options::default() };
    let upload = Source::Upload { name: "upload_1.zip".to_owned(), bytes: made::zip(&[("a.md", b"# A")]) };
    assert_eq!(import(upload, &named).await.unwrap().name, "v1.2");
    assert_eq!(imported.report.unsupported_files[0].path, "inner.zip");
}

/// A server that returns `answer(path)`: status line with headers, and body.
async fn serve(answer: impl Fn(&str) -> (String, Vec<u8>) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 4_096];
            let read = stream.read(&mut request).await.unwrap_or(0);
            let path = String::from_utf8_lossy(&request[..read]).split(' ').nth(1).unwrap_or("/").to_owned();
            let (head, body) = answer(&path);
            let _ = stream
                .write_all(
                    format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len())
                        .as_bytes(),
                )
                .await;
            let _ = stream.write_all(&body).await;
        }
    });
    address
}

#[tokio::test]
async fn a_page_is_fetched_and_every_redirect_is_checked() {
    let address = serve(|path| match path {
        "/old" => ("302 Found\r\nLocation: /new/page".to_owned(), Vec::new()),
        "/away" => ("302 Found\r\nLocation: http://127.0.0.1:1/secret".to_owned(), Vec::new()),
        "/loop" => ("302 Found\r\nLocation: /loop".to_owned(), Vec::new()),
        "/report" => ("200 OK\r\nContent-Type: application/pdf".to_owned(), made::pdf(&["From the web."])),
        "/readme.md" => ("200 OK\r\nContent-Type: text/plain".to_owned(), b"# Readme".to_vec()),
        "/large" => ("200 OK\r\nContent-Type: text/plain".to_owned(), vec![b'x'; 100_000]),
        "/new/page" => {
            ("200 OK\r\nContent-Type: text/html".to_owned(), b"<title>New page</title><p>Hello.</p>".to_vec())
        }
        _ => ("404 Not Found".to_owned(), Vec::new()),
    })
    .await;
    let fetch = async |path: &str, options: &Options| {
        import(Source::Url(format!("http://localhost:{}{path}", address.port())), options).await
    };
    let imported = fetch("/old", &private()).await.unwrap();
    assert_eq!((imported.name.as_str(), whole(&imported).as_str()), ("New_page", "# New page\n\nHello.\n"));
    assert!(whole(&fetch("/report", &private()).await.unwrap()).contains("From the web."));
    assert_eq!(paths(&fetch("/readme.md", &private()).await.unwrap()), ["readme.md"]);
    assert!(matches!(fetch("/gone", &private()).await, Err(ImportError::Fetch(why)) if why.contains("404")));
    assert!(matches!(fetch("/loop", &private()).await, Err(ImportError::Fetch(why)) if why.contains("redirects")));
    let small = Options { limits: Limits { fetch_bytes: 1_000, ..Limits::default() }, ..private() };
    assert!(matches!(fetch("/large", &small).await, Err(ImportError::TooLarge(_))));
    // One host is allowed by name; the host that it redirects to is not.
    let by_name = Options {
        network: NetworkRules { private_hosts: vec!["localhost".to_owned()], ..NetworkRules::default() },
        ..Options::default()
    };
    assert!(fetch("/readme.md", &by_name).await.is_ok());
    assert!(matches!(fetch("/away", &by_name).await, Err(ImportError::NotPublic { host, .. }) if host == "127.0.0.1"));
    let refused = fetch("/readme.md", &Options::default()).await.unwrap_err();
    assert!(refused.to_string().starts_with("host 'localhost' resolves to non-public address"), "{refused}");
}

fn git(folder: &Path, args: &[&str]) -> bool {
    let done = Command::new("git")
        .current_dir(folder)
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"])
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    done.is_ok_and(|status| status.success())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_is_cloned_within_walls() {
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path().join("work");
    write(&work, "README.md", "# Project");
    write(&work, "src/main.rs", "fn main() {}");
    assert!(
        git(&work, &["init", "-q"]) && git(&work, &["add", "."]) && git(&work, &["commit", "-qm", "first"]),
        "git is needed here"
    );
    assert!(git(folder.path(), &["clone", "-q", "--bare", "work", "project.git"]));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut daemon = Command::new("git")
        .args(["daemon", "--reuseaddr", "--export-all", "--listen=127.0.0.1", &format!("--port={port}")])
        .arg(format!("--base-path={}", folder.path().display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..3_000 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let source = |reference: Option<&str>| {
        Source::Git(GitSource {
            url: format!("git://127.0.0.1:{port}/project.git"),
            reference: reference.map(str::to_owned),
        })
    };
    let imported = import(source(None), &private()).await;
    let refused = import(source(None), &Options::default()).await;
    let no_branch = import(source(Some("nowhere")), &private()).await;
    let option = import(source(Some("--upload-pack=x")), &private()).await;
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let imported = imported.unwrap();
    assert_eq!((imported.name.as_str(), paths(&imported)), ("project", vec!["README/README.md", "src/main.rs"]));
    assert!(matches!(refused, Err(ImportError::NotPublic { .. })), "{refused:?}");
    assert!(matches!(no_branch, Err(ImportError::Git(_))), "{no_branch:?}");
    assert!(matches!(option, Err(ImportError::Invalid(_))), "{option:?}");
}
