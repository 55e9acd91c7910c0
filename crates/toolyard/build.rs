//! Asks the linker for packed relocations, and to keep one copy of identical functions. Compresses the generated files that
//! a released program prints, which has no code to generate them.
//!
//! With LanceDB in it the program has 760,000 pointers that are set when it starts. As a plain table they are 18 MB that
//! every start reads; packed they are a tenth of a megabyte. The C library must know the form: glibc does since 2.36.

use flate2::{Compression, write::ZlibEncoder};
use std::{fs, io, io::Write as _, path::PathBuf, process::Command};

/// The first glibc that reads packed relocations.
const GLIBC_READS_PACKED: (u32, u32) = (2, 36);

/// The generated files, from the root of the repository.
const GENERATED: [&str; 3] = ["docs/reference/methods.md", "console/src/types/methods.ts", "schema/config.schema.json"];

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    let variable = |name| std::env::var(name).map_err(io::Error::other);
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("../..");
    let out = PathBuf::from(variable("OUT_DIR")?);
    for path in GENERATED {
        let file = root.join(path);
        println!("cargo:rerun-if-changed={}", file.display());
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&fs::read(&file)?)?;
        let name = path.rsplit('/').next().unwrap_or(path);
        fs::write(out.join(format!("{name}.z")), packed.finish()?)?;
    }
    link();
    Ok(())
}

fn link() {
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let is_native = std::env::var("HOST").ok() == std::env::var("TARGET").ok();
    if is_release && is_native && glibc().is_some_and(|version| version >= GLIBC_READS_PACKED) {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    if is_release && is_linked_by_lld() {
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    }
}

/// Whether rustc links with the linker that it brings, which it does for this target unless somebody chose another one.
/// GNU ld refuses the option. No code of ours compares the addresses of functions.
fn is_linked_by_lld() -> bool {
    let set = |name: &str| std::env::var(name).unwrap_or_default();
    let flags = set("CARGO_ENCODED_RUSTFLAGS");
    let is_chosen = ["linker", "fuse-ld", "link-self-contained"].iter().any(|word| flags.contains(word));
    set("TARGET") == "x86_64-unknown-linux-gnu" && set("RUSTC_LINKER").is_empty() && !is_chosen
}

fn glibc() -> Option<(u32, u32)> {
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
