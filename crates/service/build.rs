//! Compresses the JSON Schemas of the methods, which released programs have instead of the code that makes them from
//! types.

use flate2::{Compression, write::ZlibEncoder};
use std::{fs, io, io::Write as _, path::PathBuf};

fn main() -> io::Result<()> {
    let variable = |name| std::env::var(name).map_err(io::Error::other);
    let source = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("../../schema/methods.schema.json");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={}", source.display());
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&fs::read(&source)?)?;
    fs::write(PathBuf::from(variable("OUT_DIR")?).join("methods.schema.json.z"), packed.finish()?)
}
