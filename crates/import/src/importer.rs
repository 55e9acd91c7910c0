//! [`Importer`] turns a source into files and a report.

use crate::{
    collect::{self, Content, FilePatterns, RawFile},
    fetch::{self, NetworkRules},
    formats::{self, Format, ParseFailure},
    git,
    limits::Limits,
    names::{self, section_name},
    parser::ConfinedParser,
    sections,
    source::Source,
};
use serde::Serialize;
use std::{collections::HashSet, path::Path};
use tokio_util::sync::CancellationToken;
use toolyard_sandbox::launch::ConfinedLauncher;

/// Options of an import.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Resource limits.
    pub limits: Limits,
    /// Network rules.
    pub network: NetworkRules,
    /// Name of the import, instead of the source's own name.
    pub name: Option<String>,
    /// Only files that match one of these patterns; empty: all.
    pub include: Vec<String>,
    /// Skips files that match one of these patterns.
    pub exclude: Vec<String>,
    /// Names of folders that are skipped.
    pub ignore_dirs: Vec<String>,
    /// The source's folders are not kept: every document is placed directly under the root.
    pub flat: bool,
}

/// A file to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutFile {
    /// The path relative to the import's root, with `/` as separator.
    pub path: String,
    /// The title: the heading, or the file name.
    pub title: String,
    /// The content: Markdown, or unchanged code.
    pub content: String,
    /// Path of the source file.
    pub from: String,
}

/// The outcome for one file of the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileOutcome {
    /// The path in the source.
    pub path: String,
    /// The parser that converted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parser: Option<String>,
    /// Why it was not imported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The outcome for every file of the source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Number of files examined.
    pub file_count: usize,
    /// Files that were converted.
    pub processed_files: Vec<FileOutcome>,
    /// Files that could not be read or parsed.
    pub failed_files: Vec<FileOutcome>,
    /// Files of an unsupported format.
    pub unsupported_files: Vec<FileOutcome>,
    /// Files skipped by a rule or an option.
    pub skipped_files: Vec<FileOutcome>,
}

/// A completed import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The name of the import, valid as one path segment.
    pub name: String,
    /// Whether the source was a single document, not a tree of files.
    pub single: bool,
    /// The files to write.
    pub files: Vec<OutFile>,
    /// The outcome for every file of the source.
    pub report: Report,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// Progress of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Number of files done.
    pub done: usize,
    /// Total number of files; 0 while the source is being listed.
    pub total: usize,
    /// The current file or step.
    pub current: &'a str,
}

/// Why an import failed. A file of a tree that cannot be imported does not fail the import; it is listed in the report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The file does not exist.
    #[error("{0} does not exist")]
    NotFound(String),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The host has an address that is not public.
    #[error("host '{host}' resolves to non-public address '{address}'")]
    NotPublic {
        /// The host.
        host: String,
        /// The refused address.
        address: String,
    },
    /// A size limit is exceeded.
    #[error("{0}")]
    TooLarge(String),
    /// A URL could not be fetched.
    #[error("{0}")]
    Fetch(String),
    /// A host did not answer, or closed the connection.
    #[error("{why}")]
    Unreachable {
        /// The message for users.
        why: String,
        /// The underlying causes, for logs.
        causes: Option<String>,
    },
    /// A repository could not be cloned.
    #[error("the repository could not be cloned: {0}")]
    Git(String),
    /// The only document of the import could not be parsed.
    #[error("{path}: {failure}")]
    Parse {
        /// Path of the document.
        path: String,
        /// Why parsing failed.
        failure: ParseFailure,
    },
    /// The only document of the import has an unsupported format.
    #[error("{0} is of a kind that cannot be imported")]
    Unsupported(String),
    /// The caller cancelled the import.
    #[error("the import was cancelled")]
    Cancelled,
    /// A local I/O error.
    #[error("{0}")]
    Io(String),
}

/// Imports sources.
#[derive(Debug, Clone, Default)]
pub struct Importer {
    parser: ConfinedParser,
    launcher: ConfinedLauncher,
}

/// The files of a source before conversion.
struct SourceFiles {
    name: String,
    single: bool,
    files: Vec<RawFile>,
    skipped: Vec<(String, String)>,
    /// The format that the server declared for a single file.
    format: Option<Format>,
    /// The folder of a clone, deleted on drop.
    _folder: Option<tempfile::TempDir>,
}

impl Importer {
    /// Documents are parsed by `toolyard-parse`, found beside this program or in `PATH`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Uses this program both as parser and as sandbox launcher.
    pub fn with_program(program: impl Into<std::path::PathBuf>) -> Self {
        let program = program.into();
        Self { parser: ConfinedParser::with_program(&program), launcher: ConfinedLauncher::with_program(program) }
    }

    /// Imports a source and calls `progress` before each file.
    pub async fn import(
        &self,
        source: Source,
        options: &Options,
        progress: &(dyn Fn(Progress<'_>) + Send + Sync),
        cancel: &CancellationToken,
    ) -> Result<Imported, ImportError> {
        let chosen = FilePatterns::new(options)?;
        let gathered = tokio::select! {
            gathered = self.gather(source, options, &chosen, progress, cancel) => gathered?,
            () = cancel.cancelled() => return Err(ImportError::Cancelled),
        };
        let mut written = OutputFiles { flat: options.flat, ..OutputFiles::default() };
        let mut report = Report { file_count: gathered.files.len() + gathered.skipped.len(), ..Report::default() };
        for (path, reason) in gathered.skipped {
            report.skipped_files.push(FileOutcome { path, parser: None, reason: Some(reason) });
        }
        let total = gathered.files.len();
        let mut bytes_read = 0u64;
        let mut name = gathered.name;
        for (done, file) in gathered.files.into_iter().enumerate() {
            if cancel.is_cancelled() {
                return Err(ImportError::Cancelled);
            }
            progress(Progress { done, total, current: &file.path });
            let path = file.path.clone();
            let read = tokio::select! {
                read = self.read(file, gathered.format, &options.limits) => read,
                () = cancel.cancelled() => return Err(ImportError::Cancelled),
            };
            match read {
                Ok(document) => {
                    bytes_read += document.bytes;
                    if bytes_read > options.limits.total_bytes {
                        return Err(ImportError::TooLarge(format!(
                            "the files have more than {} bytes",
                            options.limits.total_bytes
                        )));
                    }
                    if gathered.single
                        && options.name.is_none()
                        && document.format == Format::Html
                        && let Some(title) = &document.title
                    {
                        name = section_name(title);
                    }
                    report.processed_files.push(FileOutcome {
                        path: path.clone(),
                        parser: Some(document.format.parser().to_owned()),
                        reason: None,
                    });
                    written.add(&path, &name, gathered.single, document);
                }
                Err(ReadFailure::Unsupported) if gathered.single => return Err(ImportError::Unsupported(path)),
                Err(ReadFailure::Failed(failure)) if gathered.single => {
                    return Err(ImportError::Parse { path, failure });
                }
                Err(ReadFailure::Unsupported) => {
                    report.unsupported_files.push(FileOutcome { path, parser: None, reason: None })
                }
                Err(ReadFailure::Failed(failure)) => {
                    report.failed_files.push(FileOutcome { path, parser: None, reason: Some(failure.0) })
                }
            }
        }
        progress(Progress { done: total, total, current: "" });
        let mut warnings = Vec::new();
        if !report.failed_files.is_empty() {
            warnings.push(format!("{} of {} files could not be read", report.failed_files.len(), report.file_count));
        }
        if written.files.is_empty() {
            warnings.push("there was nothing to import".to_owned());
        }
        Ok(Imported { name, single: gathered.single, files: written.files, report, warnings })
    }

    async fn gather(
        &self,
        source: Source,
        options: &Options,
        chosen: &FilePatterns,
        progress: &(dyn Fn(Progress<'_>) + Send + Sync),
        cancel: &CancellationToken,
    ) -> Result<SourceFiles, ImportError> {
        // A file name may have an extension; a folder name may only look as if it had one ("v1.2").
        let bare = |name: &'_ str| {
            if Format::of_name(name).is_some() { names::stem(name).to_owned() } else { name.to_owned() }
        };
        let named = |fallback: &str| section_name(&options.name.as_deref().map_or_else(|| fallback.to_owned(), bare));
        match source {
            Source::Path(path) => {
                progress(Progress { done: 0, total: 0, current: "reading the folder" });
                let about =
                    tokio::fs::metadata(&path).await.map_err(|_| ImportError::NotFound(path.display().to_string()))?;
                let own =
                    path.file_name().map_or_else(|| "import".to_owned(), |name| name.to_string_lossy().into_owned());
                if about.is_dir() {
                    return walk(&path, section_name(options.name.as_deref().unwrap_or(&own)), chosen, options).await;
                }
                let most = options.limits.file_bytes;
                let place = tokio::fs::canonicalize(&path).await.map_err(|e| ImportError::Io(e.to_string()))?;
                let bytes = blocking(move || collect::read(&place, most)).await?.map_err(ImportError::Io)?;
                self.single(named(names::stem(&own)), own, bytes, None, options, chosen).await
            }
            Source::Upload { name, bytes } => {
                let own = name.rsplit(['/', '\\']).next().unwrap_or("upload").to_owned();
                self.single(named(names::stem(&own)), own, bytes, None, options, chosen).await
            }
            Source::Url(url) => {
                progress(Progress { done: 0, total: 0, current: &url });
                let fetched = fetch::fetch(&url, &options.network, &options.limits).await?;
                let last = fetched.url.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default();
                let host = fetched.url.host_str().unwrap_or("page");
                let own = if last.is_empty() { host.to_owned() } else { last.to_owned() };
                // The extension in the URL decides when the server declares no format or only "text".
                let format = match (fetched.format, Format::of_name(&own)) {
                    (None | Some(Format::Text), Some(by_name)) => Some(by_name),
                    (said, _) => said,
                };
                let fallback = if last.is_empty() { host.replace('.', "_") } else { names::stem(&own).to_owned() };
                self.single(named(&fallback), own, fetched.bytes, format, options, chosen).await
            }
            Source::Git(source) => {
                progress(Progress { done: 0, total: 0, current: &source.url });
                let folder = tempfile::tempdir().map_err(|e| ImportError::Io(e.to_string()))?;
                let place =
                    git::clone(&source, folder.path(), &options.network, &options.limits, &self.launcher, cancel)
                        .await?;
                let last = source.url.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or("repository");
                let last = last.strip_suffix(".git").unwrap_or(last);
                let name = section_name(options.name.as_deref().unwrap_or(last));
                let mut gathered = walk(&place, name, chosen, options).await?;
                gathered._folder = Some(folder);
                Ok(gathered)
            }
        }
    }

    /// A single file: a document, or an archive of many.
    async fn single(
        &self,
        name: String,
        path: String,
        bytes: Vec<u8>,
        format: Option<Format>,
        options: &Options,
        chosen: &FilePatterns,
    ) -> Result<SourceFiles, ImportError> {
        if format.or_else(|| Format::of_name(&path)) != Some(Format::Zip) {
            if bytes.len() as u64 > options.limits.file_bytes {
                return Err(ImportError::TooLarge(format!(
                    "{path} is larger than {} bytes",
                    options.limits.file_bytes
                )));
            }
            let files = vec![RawFile { path, content: Content::InMemory(bytes) }];
            return Ok(SourceFiles { name, single: true, files, skipped: Vec::new(), format, _folder: None });
        }
        let archive = self
            .parser
            .archive(&bytes, &options.limits)
            .await
            .map_err(|failure| ImportError::Parse { path, failure })?;
        let mut skipped = archive.skipped;
        let top = common_folder(&archive.files);
        let mut files = Vec::new();
        for (path, bytes) in archive.files {
            let path = path.get(top.len()..).unwrap_or(&path).to_owned();
            // Hidden files, and files that operating systems add to archives, are skipped as in a folder.
            let hidden = path.split('/').any(|part| part.starts_with('.') || part == "__MACOSX");
            if hidden || !chosen.takes(&path) {
                skipped.push((path, if hidden { "it is hidden" } else { "left out by the options" }.to_owned()));
            } else {
                files.push(RawFile { path, content: Content::InMemory(bytes) });
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(SourceFiles { name, single: false, files, skipped, format: None, _folder: None })
    }

    async fn read(&self, file: RawFile, said: Option<Format>, limits: &Limits) -> Result<Document, ReadFailure> {
        let format = said
            .or_else(|| Format::of_name(&file.path))
            .filter(|format| *format != Format::Zip)
            .ok_or(ReadFailure::Unsupported)?;
        let bytes = match file.content {
            Content::InMemory(bytes) => bytes,
            Content::OnDisk(place) => {
                let most = limits.file_bytes;
                let read = blocking(move || collect::read(&place, most))
                    .await
                    .map_err(|e| ReadFailure::Failed(ParseFailure(e.to_string())))?;
                read.map_err(|why| ReadFailure::Failed(ParseFailure(why)))?
            }
        };
        let converted = match format.is_confined() {
            true => self.parser.document(format, &bytes, limits).await,
            false => formats::plain(&bytes, limits),
        };
        let converted = converted.map_err(ReadFailure::Failed)?;
        Ok(Document { format, title: converted.title, text: converted.markdown, bytes: bytes.len() as u64 })
    }
}

async fn walk(
    place: &Path,
    name: String,
    chosen: &FilePatterns,
    options: &Options,
) -> Result<SourceFiles, ImportError> {
    let (place, limits, chosen) = (place.to_owned(), options.limits.clone(), chosen.clone());
    let (files, skipped) = blocking(move || collect::folder(&place, &chosen, &limits)).await??;
    Ok(SourceFiles { name, single: false, files, skipped, format: None, _folder: None })
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ImportError> {
    tokio::task::spawn_blocking(work).await.map_err(|e| ImportError::Io(e.to_string()))
}

/// The folder that contains all files of an archive, with a trailing slash; empty when there is none.
fn common_folder(files: &[(String, Vec<u8>)]) -> String {
    let Some(folder) = files.first().and_then(|(path, _)| path.split_once('/')).map(|(folder, _)| format!("{folder}/"))
    else {
        return String::new();
    };
    if files.iter().all(|(path, _)| path.starts_with(&folder)) { folder } else { String::new() }
}

enum ReadFailure {
    Unsupported,
    Failed(ParseFailure),
}

struct Document {
    format: Format,
    title: Option<String>,
    text: String,
    bytes: u64,
}

/// The output files collected so far.
#[derive(Default)]
struct OutputFiles {
    flat: bool,
    files: Vec<OutFile>,
    paths: HashSet<String>,
    documents: HashSet<String>,
}

impl OutputFiles {
    fn add(&mut self, path: &str, name: &str, single: bool, document: Document) {
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
        let parts = folder.split('/').filter(|part| !part.is_empty() && !self.flat && !single);
        let folder = parts.map(section_name).collect::<Vec<_>>().join("/");
        if document.format == Format::Code {
            let file = clean_file_name(file);
            let place = self.free(&join(&folder, &file));
            self.push(place, file, document.text, path);
            return;
        }
        let stem = if single { name.to_owned() } else { section_name(names::stem(file)) };
        // A single document becomes the root; each of several documents gets a folder.
        let place = if single { String::new() } else { self.document_folder(&join(&folder, &stem), file) };
        for section in sections::split(&stem, &document.text) {
            let target = self.free(&join(&place, &section.path));
            self.push(target, section.title, section.content, path);
        }
    }

    fn push(&mut self, path: String, title: String, content: String, from: &str) {
        self.files.push(OutFile { path, title, content, from: from.to_owned() });
    }

    /// A folder name that no other document uses: `notes`, then `notes_pdf`, then `notes_pdf_2`.
    fn document_folder(&mut self, wanted: &str, file: &str) -> String {
        let mut folder = wanted.to_owned();
        let mut number = 1;
        while !self.documents.insert(folder.to_lowercase()) {
            folder = match number {
                1 => format!("{wanted}_{}", names::extension(file)),
                _ => format!("{wanted}_{}_{number}", names::extension(file)),
            };
            number += 1;
        }
        folder
    }

    fn free(&mut self, wanted: &str) -> String {
        let mut path = wanted.to_owned();
        let mut number = 1;
        while !self.paths.insert(path.to_lowercase()) {
            number += 1;
            let (stem, extension) = wanted.rsplit_once('.').unwrap_or((wanted, ""));
            path =
                if extension.is_empty() { format!("{stem}_{number}") } else { format!("{stem}_{number}.{extension}") };
        }
        path
    }
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Turns the name of a code file into one safe path segment and keeps its extension.
fn clean_file_name(file: &str) -> String {
    match file.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()) {
        Some((stem, extension)) => format!("{}.{}", section_name(stem), section_name(extension)),
        None => section_name(file),
    }
}
