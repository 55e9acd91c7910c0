//! Starts an untrusted program in a sandbox: it can read and write what it was granted, use the network if granted, use
//! a limited number of processes and amount of memory, and ends when Toolyard ends.
//!
//! Toolyard starts itself (or the small child program) with the name [`LAUNCH_NAME`]. That process forks: the new
//! process sets up the sandbox for itself and becomes the program; the old one stays as its supervisor ([`supervise`]).
//! So nothing runs between `fork` and `exec` in a process with threads, and a program whose sandbox cannot be set up is
//! not started.
//!
//! Landlock restricts files by path, TCP, signals and abstract sockets ([`files`]). seccomp allows the system calls
//! that ordinary programs need and refuses all others ([`calls`]). All capabilities are dropped, the controlling
//! terminal is left, and only the three standard descriptors are passed on. The supervisor counts processes, threads
//! and memory, and changes modes and times of files on the program's behalf, where the program may write ([`modes`]).

mod bpf;
mod calls;
mod files;
mod hidden;
mod kernel_features;
mod memory;
mod modes;
mod supervise;
mod sys;

pub use hidden::{hide, is_hidden};
pub use kernel_features::{KernelFeatures, MissingFeature};

use crate::{child::close_all_but_standard, program::program};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, getgid, getpgrp, getpid, getppid, getuid, set_parent_process_death_signal,
    setrlimit, setsid,
};
use serde::{Deserialize, Serialize};
use std::{
    ffi::{OsStr, OsString},
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// `argv[0]` of a process that is to become another program.
pub const LAUNCH_NAME: &str = "toolyard-launch";
/// The program could not be confined or started.
const EXIT_NOT_STARTED: u8 = 126;
/// Files that may be open at once in one process.
const MAX_OPEN_FILES: u32 = 1024;
/// Timers and queued signals of one process. The kernel counts them for the user as a whole, so without this limit a
/// confined program could leave the user's other programs without any.
const MAX_PENDING_SIGNALS: u32 = 1024;
/// Stands before the name of every variable of the program in the environment of the launching process. That process has
/// no walls yet, so a variable that the dynamic loader obeys (`LD_PRELOAD`, `LD_LIBRARY_PATH`, `LD_AUDIT`) must not reach
/// it under its own name. The variables are not passed as arguments, because those can be read by every user.
const VARIABLE_PREFIX: &str = "toolyard-launch:";
/// A process may reserve this many times the memory limit. Programs reserve more than they use, so the supervisor
/// measures what is used; this bounds what one process can take before the supervisor looks.
const RESERVED_PER_USED: u64 = 4;

/// What a program may touch beyond the system's own files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Confinement {
    /// Files and folders it may read and execute.
    pub read: Vec<PathBuf>,
    /// Files and folders it may read and change.
    pub write: Vec<PathBuf>,
    /// Whether it may use the network.
    pub network: bool,
}

impl Confinement {
    /// The same confinement, with every folder that contains a hidden path replaced by the other entries of that
    /// folder.
    fn without(&self, hidden: &[PathBuf]) -> Self {
        let around = |paths: &[PathBuf]| paths.iter().flat_map(|path| hidden::around(path, hidden)).collect();
        Self { read: around(&self.read), write: around(&self.write), network: self.network }
    }
}

/// How much a program may use, with everything it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProcessLimits {
    /// Processes at once.
    pub processes: u32,
    /// Memory in MiB that is its own: not the pages of programs and files that others share.
    pub memory_mb: u64,
}

impl ProcessLimits {
    /// Processes at once unless configured.
    pub const DEFAULT_PROCESSES: u32 = 64;
    /// Memory in MiB unless configured.
    pub const DEFAULT_MEMORY_MB: u64 = 512;
    /// Threads for each process of the limit.
    pub const THREADS_PER_PROCESS: u32 = 16;

    pub(crate) fn memory_bytes(self) -> u64 {
        self.memory_mb << 20
    }

    pub(crate) fn threads(self) -> u32 {
        self.processes.saturating_mul(Self::THREADS_PER_PROCESS)
    }
}

impl Default for ProcessLimits {
    fn default() -> Self {
        Self { processes: Self::DEFAULT_PROCESSES, memory_mb: Self::DEFAULT_MEMORY_MB }
    }
}

/// A program to start.
#[derive(Debug, Clone)]
pub struct Program<'a> {
    /// Its name or path.
    pub program: &'a str,
    /// The arguments.
    pub args: &'a [String],
    /// Where it starts.
    pub cwd: Option<&'a Path>,
    /// All of its environment.
    pub env: &'a [(String, String)],
}

/// Starts confined programs.
#[derive(Debug, Clone, Default)]
pub struct ConfinedLauncher {
    with: Option<PathBuf>,
    limits: ProcessLimits,
    hidden: Vec<PathBuf>,
}

/// The message to the launched process.
#[derive(Serialize, Deserialize)]
struct Launch {
    walls: Confinement,
    /// Files and folders that a grant of a folder above them does not include.
    hidden: Vec<PathBuf>,
    limits: ProcessLimits,
    /// The process that launches; when it is gone, the program must not start.
    parent: i32,
}

impl ConfinedLauncher {
    /// Starts programs with this program, or the small child beside it.
    pub fn new() -> Self {
        Self::default()
    }

    /// By another program that hands over to [`run`].
    pub fn with_program(with: impl Into<PathBuf>) -> Self {
        Self { with: Some(with.into()), ..Self::default() }
    }

    /// With these limits instead of the usual ones.
    #[must_use]
    pub fn limited(&self, limits: ProcessLimits) -> Self {
        Self { limits, ..self.clone() }
    }

    /// Hides these files and folders in addition to those that [`hide`] hides from every program.
    #[must_use]
    pub fn hiding(&self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { hidden: paths.into_iter().map(|path| hidden::real(&path)).collect(), ..self.clone() }
    }

    /// The command that starts a program in the sandbox.
    pub fn command(&self, confinement: &Confinement, started: &Program<'_>) -> Result<tokio::process::Command, String> {
        let launch = Launch {
            walls: confinement.clone(),
            hidden: self.hidden.iter().cloned().chain(hidden::everywhere()).collect(),
            limits: self.limits,
            parent: getpid().as_raw_nonzero().get(),
        };
        let launch = serde_json::to_string(&launch).map_err(|e| e.to_string())?;
        let mut command = tokio::process::Command::new(self.with.as_ref().unwrap_or_else(|| program()));
        command.arg0(LAUNCH_NAME).arg(launch).arg(started.program).args(started.args);
        command.env_clear().envs(started.env.iter().map(|(key, value)| (format!("{VARIABLE_PREFIX}{key}"), value)));
        if let Some(cwd) = started.cwd {
            command.current_dir(cwd);
        }
        Ok(command)
    }
}

/// Whether this process was started to become another program.
pub fn is_launch() -> bool {
    std::env::args_os().next().is_some_and(|name| name == LAUNCH_NAME)
}

/// Sets up the sandbox, starts the program in it and supervises it. Returns only if that fails.
pub fn run() -> ExitCode {
    // Keeps the stamp in the program.
    std::hint::black_box(crate::program::STAMP);
    close_all_but_standard();
    let mut args = std::env::args_os().skip(1);
    let launch = args.next().and_then(|text| text.into_string().ok());
    let launch: Option<Launch> = launch.and_then(|text| serde_json::from_str(&text).ok());
    let (Some(mut launch), Some(program)) = (launch, args.next()) else {
        return not_started("a launch without walls or a program");
    };
    launch.walls = launch.walls.without(&launch.hidden);
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(variables());
    match start(&launch, command) {
        Ok(never) => match never {},
        Err(why) => not_started(&why),
    }
}

/// The program's environment, under its own names again.
fn variables() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let name = name.as_bytes().strip_prefix(VARIABLE_PREFIX.as_bytes())?;
        Some((OsStr::from_bytes(name).to_owned(), value))
    })
}

#[allow(clippy::print_stderr)] // the process that started us reads it there
fn not_started(why: &str) -> ExitCode {
    eprintln!("toolyard: {why}");
    ExitCode::from(EXIT_NOT_STARTED)
}

/// Forks; the one process becomes the program, the other its supervisor.
fn start(launch: &Launch, command: Command) -> Result<std::convert::Infallible, String> {
    let parent = Pid::from_raw(launch.parent);
    set_parent_process_death_signal(Some(supervise::PARENT_DIED)).map_err(|e| format!("parent's death: {e}"))?;
    if getppid() != parent {
        return Err("the process that started it is gone".to_owned());
    }
    if getpgrp() == getpid() {
        sys::leave_terminal();
    } else {
        setsid().map_err(|e| format!("a session of its own: {e}"))?;
    }
    sys::drop_capabilities().map_err(|e| format!("capabilities: {e}"))?;
    sys::adopt_orphans().map_err(|e| format!("orphans: {e}"))?;
    let roots = modes::roots(&launch.walls.write);
    let (ours, theirs) = sys::pair().map_err(|e| format!("a socket pair: {e}"))?;
    let supervisor = getpid();
    match sys::fork().map_err(|e| format!("fork: {e}"))? {
        None => {
            drop(ours);
            let why = become_program(launch, supervisor, theirs, command);
            not_started(&why);
            sys::exit_now(EXIT_NOT_STARTED)
        }
        Some(program) => {
            drop(theirs);
            supervise::run(program, parent, &ours, launch.limits, roots)
        }
    }
}

/// In the new process: sets up the sandbox and becomes the program. Returns only the reason for a failure.
fn become_program(launch: &Launch, supervisor: Pid, supervised_by: OwnedFd, mut command: Command) -> String {
    if let Err(why) = confine(launch, supervisor, &supervised_by) {
        return format!("the program cannot be confined: {why}");
    }
    drop(supervised_by);
    let program = command.get_program().to_string_lossy().into_owned();
    let error = command.exec();
    format!("{program} cannot be started: {error}")
}

fn confine(launch: &Launch, supervisor: Pid, supervised_by: &OwnedFd) -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| format!("parent's death: {e}"))?;
    if getppid() != Some(supervisor) {
        return Err("its supervisor is gone".to_owned());
    }
    let reserved = launch.limits.memory_bytes().saturating_mul(RESERVED_PER_USED);
    for (resource, most) in [
        (Resource::Nofile, u64::from(MAX_OPEN_FILES)),
        (Resource::Core, 0),
        (Resource::Data, reserved),
        (Resource::Msgqueue, 0),
        (Resource::Rtprio, 0),
        (Resource::Sigpending, u64::from(MAX_PENDING_SIGNALS)),
    ] {
        limit(resource, most)?;
    }
    let abi = sys::landlock_abi();
    // Under a filter of somebody else's there may be a listener already, and the kernel allows only one.
    let listens = sys::seccomp_knows(libc::SECCOMP_RET_USER_NOTIF);
    if !listens || memory::is_filtered() {
        // Counts every process of the user; the supervisor counts exactly, where the kernel lets it.
        limit(Resource::Nproc, memory::tasks_of_user() + u64::from(launch.limits.threads()))?;
    }
    files::restrict(&launch.walls, &launch.hidden)?;
    let about = |supervised| calls::FilterContext {
        network: launch.walls.network,
        writes: !launch.walls.write.is_empty(),
        supervised,
        ids: (getuid().as_raw(), getgid().as_raw()),
        signals_are_covered: abi >= kernel_features::ABI_SCOPE,
        truncate_is_covered: abi >= kernel_features::ABI_TRUNCATE,
    };
    let filter = |supervised| bpf::compile(&calls::rules(about(supervised)), calls::REFUSED, calls::LAST_KNOWN);
    let failed = |e: std::io::Error| format!("seccomp: {e}");
    let installed = match sys::install_filter(&filter(listens), listens) {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => sys::install_filter(&filter(false), false),
        installed => installed,
    };
    if let Some(listener) = installed.map_err(failed)? {
        sys::send_descriptor(supervised_by, &listener).map_err(|e| format!("the supervisor: {e}"))?;
    }
    Ok(())
}

fn limit(resource: Resource, most: u64) -> Result<(), String> {
    setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
        .map_err(|e| format!("resource limit {resource:?}: {e}"))
}
