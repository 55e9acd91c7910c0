//! Installs packages without running anything of them.
//!
//! The order is fixed, and the same for every source:
//!
//! 1. The files are copied ([`files`]), unpacked ([`archive`]), or fetched by git or npm ([`tools`]) to a staging
//!    folder. git and npm run in the sandbox, write only to a scratch folder, and read only our configuration.
//! 2. The manifest is read and checked.
//! 3. The dependencies that `package.json` and the lockfile name are checked ([`dependencies`]); only then does npm fetch them,
//!    in a scratch folder that holds nothing of the package.
//!
//! No package script, git hook, filter or submodule is run, and no binary link is created. The caller removes the
//! staging folder when a step fails.

mod archive;
mod clawhub;
mod dependencies;
mod files;
mod names;
mod source;
mod tools;

pub(crate) use names::is_invisible;
pub use source::{SCHEMES, Source};
pub(crate) use tools::Fetcher;

use crate::manifest::Manifest;
use clawhub::PackageLocation;
use files::Budget;
use std::path::{Path, PathBuf};
use toolyard_protocol::{ErrorCode, Failure};

/// The files of a package take at most this many bytes, dependencies included.
pub(crate) const MAX_PACKAGE_BYTES: u64 = 1 << 30;
/// A package has at most this many files and folders, dependencies included.
pub(crate) const MAX_PACKAGE_FILES: u64 = 100_000;
/// The folder of the staging folder that becomes the plugin.
const PACKAGE: &str = "package";
/// The folder of the staging folder that git and npm may write to. It is removed at the end.
const SCRATCH: &str = ".scratch";

/// A package that is ready to be put in its place.
pub(crate) struct Fetched {
    pub(crate) manifest: Manifest,
    /// The plugin's folder within the staging folder.
    pub(crate) root: PathBuf,
}

/// The package itself is at fault.
fn refused(why: impl std::fmt::Display) -> Failure {
    Failure::new(ErrorCode::ValidationError, format!("the package is refused: {why}"))
        .suggest("Ask the package's author. Nothing of it has been run, and nothing of it is kept.")
        .retryable(false)
}

/// Fetching failed; the package may be good.
fn unavailable(what: &str, why: impl std::fmt::Display) -> Failure {
    Failure::new(ErrorCode::Unavailable, format!("{what}: {why}"))
}

/// Brings a package into an empty staging folder and checks it.
pub(crate) async fn fetch(source: &Source, stage: &Path, fetcher: &Fetcher) -> Result<Fetched, Failure> {
    let (package, scratch) = (stage.join(PACKAGE), stage.join(SCRATCH));
    std::fs::create_dir(&scratch).map_err(|e| unavailable("the staging folder", e))?;
    match source {
        Source::Folder(folder) => copy_into(folder, &package).await?,
        Source::Tarball(file) => unpack_into(file, &scratch, &package).await?,
        Source::Npm(name) => {
            let file = fetcher.pack(name, &scratch).await?;
            unpack_into(&file, &scratch, &package).await?;
        }
        Source::Clawhub(spec) => match clawhub::locate(fetcher.clawhub.as_deref(), spec)? {
            PackageLocation::Folder(folder) => copy_into(&folder, &package).await?,
            PackageLocation::Tarball(file) => unpack_into(&file, &scratch, &package).await?,
            PackageLocation::Address(address) => {
                let file = fetcher.pack(&address, &scratch).await?;
                unpack_into(&file, &scratch, &package).await?;
            }
        },
        Source::Git(url) => {
            let clone = fetcher.clone_repository(url, &scratch).await?;
            copy_into(&clone, &package).await?;
        }
    }
    let manifest = Manifest::read(&package)?;
    if let Some(wanted) = dependencies::wanted(&package).map_err(refused)? {
        let modules = fetcher.install(&wanted, &scratch).await?;
        std::fs::rename(modules, package.join("node_modules")).map_err(|e| unavailable("the staging folder", e))?;
    }
    let whole = package.clone();
    blocking(move || files::survey(&whole, &mut Budget::new())).await?;
    std::fs::remove_dir_all(&scratch).map_err(|e| unavailable("the staging folder", e))?;
    Ok(Fetched { manifest, root: PathBuf::from(PACKAGE) })
}

async fn copy_into(from: &Path, to: &Path) -> Result<(), Failure> {
    let (from, to) = (from.to_owned(), to.to_owned());
    blocking(move || files::copy(&from, &to, &mut Budget::new())).await
}

async fn unpack_into(file: &Path, scratch: &Path, package: &Path) -> Result<(), Failure> {
    let (file, unpacked, package) = (file.to_owned(), scratch.join("unpacked"), package.to_owned());
    blocking(move || {
        archive::unpack(&file, &unpacked, &mut Budget::new())?;
        std::fs::rename(archive::only_folder(&unpacked), package).map_err(|e| e.to_string())
    })
    .await
}

async fn blocking(work: impl FnOnce() -> Result<(), String> + Send + 'static) -> Result<(), Failure> {
    let done = tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err("reading it failed".to_owned()));
    done.map_err(refused)
}
