//! Writes the table of the console's files: each file of `console/dist` by `include_bytes!`, compressed with Brotli and with
//! gzip where that is smaller. Node is not needed: `console/dist` is committed.

use sha2::{Digest, Sha256};
use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

/// The strongest setting: the copies are made once and sent often.
const QUALITY: u32 = 11;
/// Window of the compressor, as a power of two.
const WINDOW: u32 = 22;
/// A smaller file is sent as it is.
const MIN_COMPRESSED: usize = 256;

fn main() -> io::Result<()> {
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(variable("OUT_DIR")?);
    let dist = manifest.join("../../console/dist").canonicalize().map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("console/dist is missing from this checkout ({error}); run `make console`"),
        )
    })?;
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={}", dist.display());
    let mut files = Vec::new();
    collect(&dist, &mut files)?;
    files.sort();
    let mut table = String::from("/// Every file of the console, by path.\npub static ASSETS: &[Asset] = &[\n");
    let mut whole = Sha256::new();
    for (number, file) in files.iter().enumerate() {
        println!("cargo:rerun-if-changed={}", file.display());
        let bytes = fs::read(file)?;
        let path = file.strip_prefix(&dist).map_err(io::Error::other)?.to_string_lossy().replace('\\', "/");
        whole.update(path.as_bytes());
        whole.update(&bytes);
        let compressed = compressed(&path, &bytes)?;
        let content = match &compressed {
            Some(copies) => {
                let store = |ending: &str, copy: &[u8]| {
                    let name = format!("{number}.{ending}");
                    fs::write(out.join(&name), copy)?;
                    io::Result::Ok(format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}\"))"))
                };
                let (brotli, gzip) = (store("br", &copies.brotli)?, store("gz", &copies.gzip)?);
                format!("Content::Packed {{ brotli: {brotli}, gzip: {gzip}, length: {} }}", bytes.len())
            }
            None => format!("Content::Plain(include_bytes!({:?}))", file.display().to_string()),
        };
        let etag = hex(&Sha256::digest(&bytes)[..12]);
        writeln!(
            table,
            "    Asset {{ path: {:?}, etag: \"\\\"{etag}\\\"\", content: {content} }},",
            format!("/{path}"),
        )
        .map_err(io::Error::other)?;
    }
    table.push_str("];\n");
    writeln!(table, "const VERSION: &str = \"{}\";", hex(&whole.finalize()[..12])).map_err(io::Error::other)?;
    fs::write(out.join("assets.rs"), table)
}

fn variable(name: &str) -> io::Result<String> {
    std::env::var(name).map_err(|error| io::Error::other(format!("{name}: {error}")))
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => collect(&entry.path(), files)?,
            false => files.push(entry.path()),
        }
    }
    Ok(())
}

struct Copies {
    brotli: Vec<u8>,
    gzip: Vec<u8>,
}

/// Compressed copies, where the file is not compressed already and both are smaller.
fn compressed(path: &str, bytes: &[u8]) -> io::Result<Option<Copies>> {
    let is_text = [".html", ".js", ".mjs", ".css", ".svg", ".json", ".webmanifest", ".txt", ".map"];
    if bytes.len() < MIN_COMPRESSED || !is_text.iter().any(|end| path.ends_with(end)) {
        return Ok(None);
    }
    let mut brotli = Vec::new();
    let mut writer = brotli::CompressorWriter::new(&mut brotli, 4096, QUALITY, WINDOW);
    io::Write::write_all(&mut writer, bytes)?;
    drop(writer);
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    io::Write::write_all(&mut writer, bytes)?;
    let copies = Copies { brotli, gzip: writer.finish()? };
    Ok((copies.brotli.len().max(copies.gzip.len()) < bytes.len()).then_some(copies))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
        text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
        text
    })
}
