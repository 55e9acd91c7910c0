//! Keeps the signed heads of the ledger apart from the database: in a file beside it, and where the configuration says.
//!
//! A head is a few hundred bytes. If a copy is kept where an attacker cannot change it, `toolyard runs verify --head
//! FILE` detects a rollback of the whole store. A separate thread does the work, and no call waits for it.

use crate::{
    config::{RecordConfig, expand},
    home::Home,
};
use anyhow::{Context, Result, bail};
use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread::JoinHandle,
    time::{Duration, Instant},
};
use toolyard_engine::{Engine, ledger::SignedHead, store::StoreError};
use toolyard_protocol::{ErrorCode, Failure};
use toolyard_service::proof::ProofKeeper;

/// The file beside the database gets at most one head in this time while runs end all the time.
const FILE_EVERY: Duration = Duration::from_secs(1);
/// At this size the older half of the file is thinned out.
const FILE_BYTES: u64 = 1 << 20;
/// Of the older half, one head in so many stays.
const THINNED: usize = 16;
/// How long an address may take to accept a head.
const POST_TIMEOUT: Duration = Duration::from_secs(10);
/// The file in a repository.
const REPOSITORY_FILE: &str = "toolyard-heads.jsonl";

/// A place that keeps heads.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    File(PathBuf),
    Repository(PathBuf),
    Address(String),
}

impl Target {
    fn parse(text: &str) -> Self {
        if let Some(folder) = text.strip_prefix("git:") {
            Self::Repository(expand(Path::new(folder)))
        } else if text.starts_with("https://") || text.starts_with("http://") {
            Self::Address(text.to_owned())
        } else {
            Self::File(expand(Path::new(text)))
        }
    }

    /// For log lines: an address may hold a secret topic.
    fn shown(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Repository(path) => format!("git:{}", path.display()),
            Self::Address(address) => toolyard_engine::redact::url(address),
        }
    }

    fn keep(&self, head: &SignedHead, runtime: &tokio::runtime::Handle) -> Result<()> {
        match self {
            Self::File(path) => append(path, head, IfMissing::Create),
            Self::Repository(folder) => commit(folder, head),
            Self::Address(address) => runtime.block_on(post(address, head)),
        }
    }
}

/// Keeps heads until it is finished.
pub struct Heads {
    sender: Sender<Message>,
    thread: JoinHandle<()>,
}

enum Message {
    Head(Box<SignedHead>),
    End,
}

struct HeadWriter {
    file: PathBuf,
    /// Its time of change says when heads were last sent to the targets, across processes.
    sent: PathBuf,
    targets: Vec<Target>,
    every: Duration,
    runtime: tokio::runtime::Handle,
    kept_at: Option<Instant>,
    newest: Option<SignedHead>,
}

impl Heads {
    /// Keeps the heads of an engine's ledger from now on. Must be called inside a tokio runtime.
    pub fn start(home: &Home, engine: &Engine, config: &RecordConfig) -> Result<Self> {
        let file = home.heads();
        let newest = engine.sealer().head()?;
        // The file is there before the ledger has anything, so that one that is missing was removed.
        // A node that joins a cluster begins its own file with the next head.
        if (newest.is_none() || engine.store().is_shared()) && !file.exists() {
            OpenOptions::new()
                .create(true)
                .append(true)
                .mode(0o600)
                .open(&file)
                .with_context(|| format!("cannot create {}", file.display()))?;
        }
        let mut keeper = HeadWriter {
            sent: home.state().join("heads.sent"),
            targets: config.heads.iter().map(|text| Target::parse(text)).collect(),
            every: Duration::from_secs(config.heads_every_seconds),
            runtime: tokio::runtime::Handle::current(),
            kept_at: None,
            newest: None,
            file,
        };
        if let Some(newest) = newest {
            keeper.catch_up(newest, engine.sealer().has_one_head()?);
        }
        let (sender, heads) = mpsc::channel();
        let listener = sender.clone();
        engine.sealer().on_head(Box::new(move |head| {
            if listener.send(Message::Head(Box::new(head.clone()))).is_err() {
                tracing::error!("a signed head is not kept: the thread for it has ended");
            }
        }));
        let thread = std::thread::Builder::new().name("heads".to_owned()).spawn(move || keeper.run(&heads))?;
        Ok(Self { sender, thread })
    }

    /// Keeps the newest head, and ends.
    pub fn finish(self) {
        if self.sender.send(Message::End).is_err() || self.thread.join().is_err() {
            tracing::error!("keeping the heads failed unexpectedly");
        }
    }
}

impl HeadWriter {
    fn run(mut self, messages: &Receiver<Message>) {
        loop {
            let message = match self.newest {
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(_) => messages.recv_timeout(FILE_EVERY),
            };
            match message {
                Ok(Message::Head(head)) => {
                    self.newest = Some(*head);
                    if self.kept_at.is_some_and(|at| at.elapsed() < FILE_EVERY) {
                        continue; // the next one, or the end of this second, keeps it
                    }
                    self.keep_newest();
                }
                Err(RecvTimeoutError::Timeout) => self.keep_newest(),
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => return self.keep_newest(),
            }
        }
    }

    /// At start, stores the head that a killed process had not stored.
    fn catch_up(&mut self, newest: SignedHead, is_first: bool) {
        let last = fs::read_to_string(&self.file).ok().map(|text| text.lines().last().map(str::to_owned));
        let kept = match last {
            None => return,
            Some(None) => {
                // The file begins with the ledger's first head; one that was emptied later is left to `runs verify`.
                if is_first {
                    self.keep(newest);
                }
                return;
            }
            Some(Some(line)) => serde_json::from_str::<SignedHead>(&line),
        };
        match kept {
            Ok(kept) if kept.size < newest.size => self.keep(newest),
            Ok(kept) if kept.size > newest.size || kept.root != newest.root => {
                tracing::error!(
                    kept = kept.size,
                    now = newest.size,
                    "the ledger is not the one that the last kept head was signed for; see `toolyard runs verify`"
                );
            }
            Ok(_) => {}
            Err(error) => tracing::error!(%error, file = %self.file.display(), "the last kept head cannot be read"),
        }
    }

    fn keep(&mut self, head: SignedHead) {
        self.newest = Some(head);
        self.keep_newest();
    }

    fn keep_newest(&mut self) {
        let Some(head) = self.newest.take() else { return };
        self.kept_at = Some(Instant::now());
        if let Err(error) = append(&self.file, &head, IfMissing::Fail).and_then(|()| thin_out(&self.file)) {
            tracing::error!("a signed head could not be kept: {error:#}");
        }
        if self.targets.is_empty() || !self.is_due() {
            return;
        }
        for target in &self.targets {
            if let Err(error) = target.keep(&head, &self.runtime) {
                tracing::error!(target = target.shown(), "a signed head could not be kept: {error:#}");
            }
        }
        if let Err(error) = fs::write(&self.sent, b"") {
            tracing::warn!(%error, "it could not be noted that heads were sent");
        }
    }

    fn is_due(&self) -> bool {
        let sent = fs::metadata(&self.sent).and_then(|metadata| metadata.modified());
        !sent.is_ok_and(|at| at.elapsed().is_ok_and(|since| since < self.every))
    }
}

/// What to do if the file is missing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfMissing {
    Create,
    /// The file was created with the ledger, so somebody removed it. Creating it again would hide that.
    Fail,
}

/// Adds a head to a file.
fn append(path: &Path, head: &SignedHead, if_missing: IfMissing) -> Result<()> {
    let mut line = serde_json::to_vec(head)?;
    line.push(b'\n');
    let mut file = OpenOptions::new()
        .create(if_missing == IfMissing::Create)
        .append(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    file.write_all(&line).with_context(|| format!("cannot write {}", path.display()))
}

/// Keeps the file small: a few of the older heads and all of the newer ones prove as much.
fn thin_out(path: &Path) -> Result<()> {
    if fs::metadata(path)?.len() < FILE_BYTES {
        return Ok(());
    }
    let text = fs::read_to_string(path)?;
    let lines: Vec<&str> = text.lines().collect();
    let (older, newer) = lines.split_at(lines.len() / 2);
    let kept: Vec<&str> = older.iter().step_by(THINNED).chain(newer).copied().collect();
    let beside = path.with_extension("new");
    fs::write(&beside, kept.join("\n") + "\n")?;
    fs::rename(&beside, path)?;
    Ok(())
}

/// Adds a head to a file of a repository and commits it.
fn commit(folder: &Path, head: &SignedHead) -> Result<()> {
    append(&folder.join(REPOSITORY_FILE), head, IfMissing::Create)?;
    let message = format!("Keep the head of a ledger of {} leaves", head.size);
    let identity = ["-c", "user.name=toolyard", "-c", "user.email=toolyard@localhost", "-c", "commit.gpgSign=false"];
    for arguments in [
        vec!["add", "--", REPOSITORY_FILE],
        identity.into_iter().chain(["commit", "--quiet", "-m", &message, "--", REPOSITORY_FILE]).collect(),
    ] {
        let output = Command::new("git")
            .arg("-C")
            .arg(folder)
            .args(["-c", "core.hooksPath=/dev/null"])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .context("git cannot be started")?;
        if !output.status.success() {
            bail!("git in {}: {}", folder.display(), String::from_utf8_lossy(&output.stderr).trim());
        }
    }
    Ok(())
}

/// Sends a head to an address. Neither a proxy nor a redirect chooses where it goes.
async fn post(address: &str, head: &SignedHead) -> Result<()> {
    toolyard_import::fetch::settle_cryptography();
    let client = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(POST_TIMEOUT)
        .build()?;
    let answer = client
        .post(address)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(head)?)
        .send()
        .await
        .map_err(|error| error.without_url())?;
    if !answer.status().is_success() {
        bail!("the address answered {}", answer.status());
    }
    Ok(())
}

/// The signing key and the file of heads of a home.
pub struct HomeProof {
    home: Home,
    /// The keys are the cluster's.
    is_shared: bool,
}

impl HomeProof {
    /// Of this home.
    pub fn new(home: Home, is_shared: bool) -> Self {
        Self { home, is_shared }
    }
}

impl ProofKeeper for HomeProof {
    fn kept_heads(&self) -> (String, Option<String>) {
        let path = self.home.heads();
        (path.display().to_string(), fs::read_to_string(&path).ok())
    }

    fn make_key(&self) -> Result<[u8; 32], Failure> {
        if self.is_shared {
            return Err(Failure::new(ErrorCode::PreconditionFailed, "the nodes of a cluster share their keys")
                .suggest(
                    "Stop the nodes, move the state to one machine with `toolyard migrate --to sqlite`, rotate there, and move \
                     it into an empty database.",
                ));
        }
        self.home.make_next_key().map_err(|error| Failure::new(ErrorCode::StoreUnavailable, format!("{error:#}")))
    }

    fn use_key(&self) -> Result<(), StoreError> {
        self.home.use_next_key().map_err(|error| StoreError::failed(format!("{error:#}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(size: u64) -> SignedHead {
        SignedHead { size, root: "00".repeat(32), at: 1, note: "a note".to_owned(), key: "k".to_owned() }
    }

    #[test]
    fn places_are_told_apart() {
        assert_eq!(Target::parse("/mnt/heads"), Target::File("/mnt/heads".into()));
        assert_eq!(Target::parse("git:/srv/heads"), Target::Repository("/srv/heads".into()));
        let address = Target::parse("https://ntfy.example/Zm9vYmFyYmF6cXV4MTIz");
        assert!(matches!(address, Target::Address(_)));
        assert!(!address.shown().contains("Zm9v"), "{}", address.shown());
    }

    #[test]
    fn a_repository_gets_a_commit_for_each_head() {
        let folder = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| Command::new("git").arg("-C").arg(folder.path()).args(args).output().unwrap();
        assert!(git(&["init", "--quiet"]).status.success());
        commit(folder.path(), &head(1)).unwrap();
        commit(folder.path(), &head(2)).unwrap();
        assert_eq!(String::from_utf8(git(&["rev-list", "--count", "HEAD"]).stdout).unwrap().trim(), "2");
        let text = fs::read_to_string(folder.path().join(REPOSITORY_FILE)).unwrap();
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn a_large_file_of_heads_keeps_the_newer_half_and_some_of_the_older() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("heads.jsonl");
        let line = serde_json::to_string(&head(1)).unwrap().len() as u64 + 1;
        let many = FILE_BYTES / line + 1;
        (1..=many).for_each(|size| append(&path, &head(size), IfMissing::Create).unwrap());
        thin_out(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let last: SignedHead = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(last.size, many);
        let lines = text.lines().count() as u64;
        assert!(lines > many / 2 && lines < many * 6 / 10, "{lines} of {many}");
    }
}
