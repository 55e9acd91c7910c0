//! Runs Git on a shadow repository. Nothing of the project's or the user's configuration is read: it could name programs.

use std::{
    ffi::OsStr,
    fs, io,
    io::{Read, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Instant,
};

/// The repository's own settings. It is a cache: a lost object means a snapshot less, so nothing waits for the disk.
const CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tlogallrefupdates = false\n\
    \tfsync = none\n\tlooseCompression = 1\n\tuntrackedCache = true\n\tautocrlf = false\n\tfsmonitor = false\n\
    \thooksPath = /dev/null\n[gc]\n\tauto = 0\n[index]\n\tversion = 2\n";
/// Contents are kept byte for byte, whatever the project's attributes say about line ends and filters.
const ATTRIBUTES: &str = "* -text -eol -filter -ident -working-tree-encoding\n";
/// Maximum length of Git's error output that is kept.
const MAX_COMPLAINT: usize = 300;

pub(super) struct Git {
    dir: PathBuf,
    root: PathBuf,
}

impl Git {
    pub(super) fn new(dir: PathBuf, root: PathBuf) -> Self {
        Self { dir, root }
    }

    /// Where the repository is.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A file of the project by its name in Git's answers.
    pub(super) fn path(&self, name: &[u8]) -> PathBuf {
        self.root.join(OsStr::from_bytes(name))
    }

    /// Makes the repository if it is not there.
    pub(super) fn create(&self) -> io::Result<()> {
        if self.dir.join("HEAD").exists() {
            return Ok(());
        }
        for folder in ["objects/info", "refs/heads", "info"] {
            fs::create_dir_all(self.dir.join(folder))?;
        }
        fs::write(self.dir.join("config"), CONFIG)?;
        fs::write(self.dir.join("info/attributes"), ATTRIBUTES)?;
        self.seed()?;
        // Last: a repository without it is made again.
        fs::write(self.dir.join("HEAD"), "ref: refs/heads/main\n")
    }

    /// Begins with what the project's repository knows, where its contents are the files' bytes.
    fn seed(&self) -> io::Result<()> {
        let theirs = self.root.join(".git");
        let exclude = theirs.join("info/exclude");
        if exclude.is_file() {
            fs::copy(exclude, self.dir.join("info/exclude"))?;
        }
        let index = theirs.join("index");
        let config = fs::read_to_string(theirs.join("config")).unwrap_or_default().to_lowercase();
        let converts =
            ["autocrlf", "objectformat", "[filter", "splitindex", "sparse"].iter().any(|w| config.contains(w))
                || self.root.join(".gitattributes").exists()
                || theirs.join("info/attributes").exists();
        let objects = theirs.join("objects");
        if converts || !index.is_file() || !objects.is_dir() || objects.as_os_str().as_bytes().contains(&b'\n') {
            return Ok(());
        }
        let mut line = objects.into_os_string().into_encoded_bytes();
        line.push(b'\n');
        fs::write(self.dir.join("objects/info/alternates"), line)?;
        fs::copy(index, self.dir.join("index")).map(drop)
    }

    /// Forgets the copied index. False if there was none to forget.
    pub(super) fn unseed(&self) -> bool {
        let seeded = self.dir.join("objects/info/alternates").exists();
        seeded && fs::remove_file(self.dir.join("index")).is_ok()
    }

    /// Runs a command of Git until a deadline and gives its output.
    pub(super) fn run(&self, arguments: &[&str], input: &[u8], until: Instant) -> Result<Vec<u8>, String> {
        let mut command = Command::new("git");
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()))
            .env("GIT_DIR", &self.dir)
            .env("GIT_WORK_TREE", &self.root)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("LC_ALL", "C")
            .current_dir(&self.root)
            .args(arguments)
            .stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("git cannot be started: {error}"))?;
        let feeding = child.stdin.take().map(|mut pipe| {
            let input = input.to_vec();
            // If Git ends early, it closes the pipe; its exit code shows the failure.
            thread::spawn(move || drop(pipe.write_all(&input)))
        });
        let result = finish(&mut child, until);
        if let Some(feeding) = feeding
            && feeding.join().is_err()
        {
            return Err("git could not be given its input".to_owned());
        }
        result.map_err(|why| format!("git {}: {why}", arguments.first().unwrap_or(&"")))
    }
}

fn finish(child: &mut Child, until: Instant) -> Result<Vec<u8>, String> {
    let (sender, receiver) = mpsc::channel();
    for (number, pipe) in [
        child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
        child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
    ]
    .into_iter()
    .flatten()
    .enumerate()
    {
        let sender = sender.clone();
        thread::spawn(move || {
            let (mut pipe, mut bytes) = (pipe, Vec::new());
            let read = pipe.read_to_end(&mut bytes).map(|_| bytes);
            // The caller has stopped waiting after the deadline.
            drop(sender.send((number, read)));
        });
    }
    drop(sender);
    let (mut output, mut complaint) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let left = until.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left) {
            Ok((0, Ok(bytes))) => output = bytes,
            Ok((_, Ok(bytes))) => complaint = bytes,
            Ok((_, Err(error))) => return Err(error.to_string()),
            Err(_) => {
                let killed = child.kill().and_then(|()| child.wait());
                return Err(match killed {
                    Ok(_) => "it takes too long".to_owned(),
                    Err(error) => format!("it takes too long and cannot be stopped: {error}"),
                });
            }
        }
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(output);
    }
    let complaint = String::from_utf8_lossy(&complaint);
    Err(complaint.trim().chars().take(MAX_COMPLAINT).collect())
}
