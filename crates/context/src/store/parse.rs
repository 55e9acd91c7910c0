//! Converts sources to readable files with `toolyard-import`, which parses untrusted formats in a confined child
//! process.

use crate::{
    error::{ApiError, Code, Result},
    store::disk,
};
use std::{
    future::Future,
    path::{Path, PathBuf},
};
use tokio_util::sync::CancellationToken;
use toolyard_import::{
    ImportError, Imported, Importer, Limits, Options,
    fetch::NetworkRules,
    parser::{Archive, ConfinedParser},
};

/// An import source.
pub(crate) enum Source {
    Upload { path: PathBuf, name: String },
    Local(PathBuf),
    Remote(String),
}

/// Which parts of the source are imported, and from which private hosts.
pub(crate) struct ImportSelection<'a> {
    pub(crate) include: &'a [String],
    pub(crate) exclude: &'a [String],
    pub(crate) ignore: &'a [String],
    pub(crate) hosts: &'a [String],
}

/// The result of a conversion.
#[derive(Default)]
pub(crate) struct ConvertedSource {
    pub(crate) name: String,
    pub(crate) is_folder: bool,
    /// Paths relative to the root, and texts.
    pub(crate) files: Vec<(String, String)>,
    /// Converted source files and their parsers.
    pub(crate) processed: Vec<(String, String)>,
    /// Failed source files and the reasons.
    pub(crate) failed: Vec<(String, String)>,
    pub(crate) unsupported: Vec<String>,
    pub(crate) skipped: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

/// Blocks on a future: on a blocking thread of a runtime, or outside of any runtime.
fn wait<T>(future: impl Future<Output = T>) -> Result<T> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => Ok(runtime.block_on(future)),
        Err(_) => Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)),
    }
}

/// Converts a source.
pub(crate) fn parse(
    source: &Source,
    wanted: &ImportSelection<'_>,
    cancel: &CancellationToken,
) -> Result<ConvertedSource> {
    let mut options = Options {
        include: wanted.include.to_vec(),
        exclude: wanted.exclude.to_vec(),
        ignore_dirs: wanted.ignore.to_vec(),
        network: NetworkRules { private_hosts: wanted.hosts.to_vec(), ..NetworkRules::default() },
        ..Options::default()
    };
    let source = match source {
        Source::Local(path) => toolyard_import::Source::Path(path.clone()),
        Source::Remote(text) => toolyard_import::Source::of_text(text).map_err(refused)?,
        Source::Upload { path, name } => {
            let bytes = disk::read(path)?;
            // Clients send a folder as a zip archive with the folder's name.
            let packed = path.extension().is_some_and(|e| e == "zip") && !name.to_lowercase().ends_with(".zip");
            if packed {
                options.name = Some(name.clone());
            }
            let name = if packed { format!("{name}.zip") } else { name.clone() };
            toolyard_import::Source::Upload { name, bytes }
        }
    };
    let importer = Importer::new();
    let imported = wait(importer.import(source, &options, &|_| {}, cancel))?.map_err(refused)?;
    Ok(settled(imported))
}

fn settled(imported: Imported) -> ConvertedSource {
    let report = imported.report;
    ConvertedSource {
        name: imported.name,
        is_folder: !imported.single,
        files: imported.files.into_iter().map(|file| (file.path, file.content)).collect(),
        processed: report.processed_files.into_iter().map(|f| (f.path, f.parser.unwrap_or_default())).collect(),
        failed: report.failed_files.into_iter().map(|f| (f.path, f.reason.unwrap_or_default())).collect(),
        unsupported: report.unsupported_files.into_iter().map(|f| f.path).collect(),
        skipped: report.skipped_files.into_iter().map(|f| f.path).collect(),
        warnings: imported.warnings,
    }
}

fn refused(error: ImportError) -> ApiError {
    let message = error.to_string();
    match error {
        ImportError::Unreachable { causes, .. } => ApiError { causes, ..ApiError::new(Code::Unavailable, message) },
        ImportError::NotFound(_) => ApiError::new(Code::NotFound, message),
        ImportError::Invalid(_) => ApiError::argument(message),
        ImportError::NotPublic { .. } => ApiError::new(
            Code::PermissionDenied,
            format!(
                "HTTP server only accepts public remote resource targets; {message}. To allow it, name the host in context.allowPrivateHosts."
            ),
        ),
        ImportError::TooLarge(_) => ApiError::new(Code::ResourceExhausted, message),
        ImportError::Fetch(_) | ImportError::Git(_) => ApiError::new(Code::Unavailable, message),
        ImportError::Parse { .. } | ImportError::Unsupported(_) => ApiError::new(Code::ProcessingError, message),
        ImportError::Cancelled => ApiError::new(Code::DeadlineExceeded, message),
        ImportError::Io(_) => ApiError::new(Code::Internal, message),
    }
}

/// Unpacks an archive into a folder. The confined parser has already sanitised the paths.
pub(crate) fn unzip(archive: &Path, into: &Path) -> Result<()> {
    let bytes = disk::read(archive)?;
    let Archive { files, .. } = wait(ConfinedParser::new().archive(&bytes, &Limits::default()))?
        .map_err(|failure| ApiError::new(Code::ProcessingError, failure.to_string()))?;
    // If all files are in one top folder, its name is stripped.
    let top = files.first().and_then(|(path, _)| path.split_once('/').map(|(top, _)| format!("{top}/")));
    let top = top.filter(|top| files.iter().all(|(path, _)| path.starts_with(top.as_str()))).unwrap_or_default();
    for (path, bytes) in files {
        let Some(safe) = toolyard_import::names::safe_path(path.strip_prefix(top.as_str()).unwrap_or(&path)) else {
            continue;
        };
        let target = into.join(safe);
        if let Some(folder) = target.parent() {
            std::fs::create_dir_all(folder)?;
        }
        toolyard_faults::write(&target, bytes)?;
    }
    Ok(())
}
