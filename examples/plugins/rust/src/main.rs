//! A Toolyard plugin that speaks MCP on standard input and output, with nothing but the standard library. A real one
//! would use an SDK and a JSON library; this one shows how little it takes.

use std::io::{BufRead, Write};

fn main() {
    let mut out = std::io::stdout();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let (Some(id), Some(method)) = (raw(&line, "id"), raw(&line, "method")) else { continue };
        let answer = match method.trim_matches('"') {
            "initialize" => result(
                id,
                r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"example-rust","version":"1.0.0"}}"#,
            ),
            "tools/list" => result(
                id,
                r#"{"tools":[{"name":"rs_checksum","description":"The Adler-32 checksum of a text.","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]},"outputSchema":{"type":"object","properties":{"adler32":{"type":"string"}},"required":["adler32"]}}]}"#,
            ),
            "tools/call" => {
                let sum = adler32(&unescaped(raw(&line, "text").unwrap_or("\"\"")));
                let hex = format!("{sum:08x}");
                result(
                    id,
                    &format!(
                        r#"{{"content":[{{"type":"text","text":"{hex}"}}],"structuredContent":{{"adler32":"{hex}"}}}}"#
                    ),
                )
            }
            "ping" => result(id, "{}"),
            _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"Method not found"}}}}"#),
        };
        if writeln!(out, "{answer}").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

fn result(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

fn adler32(text: &str) -> u32 {
    let (mut a, mut b) = (1u32, 0u32);
    for byte in text.bytes() {
        a = (a + u32::from(byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    b << 16 | a
}

/// The text of a key's value: a string with its quotes, or a number. Finds the first one of that name.
fn raw<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let start = line.find(&format!("\"{key}\":"))? + key.len() + 3;
    let rest = line[start..].trim_start();
    if !rest.starts_with('"') {
        return rest.split([',', '}']).next().map(str::trim);
    }
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(&rest[..=at]),
            _ => {}
        }
    }
    None
}

/// A JSON string without its quotes and escapes.
fn unescaped(quoted: &str) -> String {
    let mut text = String::new();
    let mut chars = quoted.trim_matches('"').chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('u') => {
                let code: String = chars.by_ref().take(4).collect();
                text.extend(u32::from_str_radix(&code, 16).ok().and_then(char::from_u32));
            }
            Some(other) => text.push(other),
            None => {}
        }
    }
    text
}
