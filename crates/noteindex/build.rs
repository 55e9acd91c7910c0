//! Stamps the crate with a hash of its sources, so that two programs built from different sources reject each other
//! even when nobody changed a version number.
#![allow(clippy::print_stdout)] // how a build script speaks to cargo

#[path = "../sandbox/build/stamp.rs"]
mod stamp;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../sandbox/build/stamp.rs");
    println!("cargo:rustc-env=TOOLYARD_INDEX_STAMP={:08x}", stamp::of_sources() >> 32);
}
