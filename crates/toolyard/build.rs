//! Asks the linker for packed relocations, and to keep one copy of identical functions.
//!
//! With LanceDB in it the program has 760,000 pointers that are set when it starts. As a plain table they are 18 MB that
//! every start reads; packed they are a tenth of a megabyte. The C library must know the form: glibc does since 2.36.

use std::process::Command;

/// The first glibc that reads packed relocations.
const GLIBC_READS_PACKED: (u32, u32) = (2, 36);

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
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
