//! Stamps the crate with a hash of its sources, so that a program rejects a script child built from others.
#![allow(clippy::print_stdout)] // how a build script speaks to cargo

mod stamp;

fn main() {
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rustc-env=TOOLYARD_SCRIPT_STAMP={:016x}", stamp::of_sources());
}
