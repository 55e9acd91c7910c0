//! `toolyard-parse` as a process: it parses one document and accepts only its own version of Toolyard.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};
use toolyard_import::{Limits, wire::VERSION};

const PROGRAM: &str = env!("CARGO_BIN_EXE_toolyard-parse");

fn parse(version: &str, page: &str) -> Output {
    let mut child = Command::new(PROGRAM)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let limits = serde_json::to_string(&Limits::default()).unwrap();
    let length = page.len();
    let request =
        format!("{{\"version\":\"{version}\",\"format\":\"html\",\"bytes\":{length},\"limits\":{limits}}}\n{page}");
    child.stdin.take().unwrap().write_all(request.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn it_parses_one_document_and_ends() {
    let output = parse(VERSION, "<title>T</title><p>Hello from inside.</p>");
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Hello from inside."), "{output:?}");
}

#[test]
fn it_refuses_another_version_of_toolyard_and_names_both() {
    let output = parse("9.9.9/1", "<p>Hello from inside.</p>");
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("9.9.9/1") && said.contains(VERSION) && said.contains("install both programs"), "{said}");
    assert!(!said.contains("Hello"), "{said}");
}

#[test]
fn it_says_its_version_and_refuses_to_run_by_hand() {
    let version = Command::new(PROGRAM).arg("--version").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&version.stdout), format!("toolyard-parse {VERSION}\n"));
    let by_hand = Command::new(PROGRAM).arg("document.pdf").stdin(Stdio::null()).output().unwrap();
    assert_eq!(by_hand.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&by_hand.stderr).contains("started by toolyard"));
}
