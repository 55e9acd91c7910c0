//! Starts a program that we did not write, confined: it can read and write what it was granted, reach the network if it
//! was granted that, and ends when Toolyard ends.
//!
//! Toolyard starts itself (or the small child beside it) under the name [`LAUNCH_NAME`]; that process puts up the walls
//! around itself and becomes the program. So nothing runs between `fork` and `exec` in a process with threads, and a
//! program whose walls cannot be put up is not started.
//!
//! Landlock covers files, TCP, signals and abstract sockets. seccomp takes away sockets of every kind where the network
//! is not granted, and in any case what a tool has no business with: tracing, kernel modules, mounts, keys, `io_uring`
//! (which would do the rest unseen).

use crate::program::program;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::process::{Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setrlimit};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// `argv[0]` of a process that is to become another program.
pub const LAUNCH_NAME: &str = "toolyard-launch";
/// The program could not be confined or started.
const EXIT_NOT_STARTED: u8 = 126;
/// The newest Landlock rights known here.
const RIGHTS: ABI = ABI::V6;
/// Files that may be open at once.
const MAX_OPEN_FILES: u64 = 1024;

/// What every program may read: the system's programs and libraries, and what they need to know of the machine. Nothing
/// of the user's; of `/proc` only itself and the machine, because other processes' environments hold secrets.
const SYSTEM: [&str; 32] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/uptime",
    "/proc/loadavg",
    "/proc/version",
    "/proc/filesystems",
    "/proc/sys",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
    "/dev/urandom",
    "/dev/random",
    "/dev/zero",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/passwd",
    "/etc/group",
];

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

/// A program to start.
#[derive(Debug, Clone)]
pub struct Program<'a> {
    /// Its name or path.
    pub program: &'a str,
    /// Its arguments.
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
}

impl ConfinedLauncher {
    /// By this very program, or the small child beside it.
    pub fn new() -> Self {
        Self::default()
    }

    /// By another program that hands over to [`run`].
    pub fn with_program(with: impl Into<PathBuf>) -> Self {
        Self { with: Some(with.into()) }
    }

    /// The command that starts a program within walls.
    pub fn command(&self, confinement: &Confinement, started: &Program<'_>) -> Result<tokio::process::Command, String> {
        let walls = serde_json::to_string(confinement).map_err(|e| e.to_string())?;
        let mut command = tokio::process::Command::new(self.with.as_ref().unwrap_or_else(|| program()));
        command.arg0(LAUNCH_NAME).arg(walls).arg(started.program).args(started.args);
        command.env_clear().envs(started.env.iter().map(|(key, value)| (key, value)));
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

/// Puts up the walls and becomes the program. Returns only if that fails.
#[allow(clippy::print_stderr)] // whoever started us reads it there
pub fn run() -> ExitCode {
    // Keeps the stamp in the program.
    std::hint::black_box(crate::program::STAMP);
    let mut args = std::env::args_os().skip(1);
    let walls = args.next().and_then(|text| text.into_string().ok());
    let walls: Option<Confinement> = walls.and_then(|text| serde_json::from_str(&text).ok());
    let (Some(walls), Some(program)) = (walls, args.next()) else {
        eprintln!("toolyard: a launch without walls or a program");
        return ExitCode::from(EXIT_NOT_STARTED);
    };
    if let Err(why) = confine(&walls) {
        eprintln!("toolyard: the program cannot be confined: {why}");
        return ExitCode::from(EXIT_NOT_STARTED);
    }
    let error = Command::new(&program).args(args).exec();
    eprintln!("toolyard: {} cannot be started: {error}", program.to_string_lossy());
    ExitCode::from(EXIT_NOT_STARTED)
}

fn confine(walls: &Confinement) -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| format!("parent's death: {e}"))?;
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() == 1) {
        // The parent was gone before it could be watched.
        return Err("whoever started it is gone".to_owned());
    }
    for (resource, most) in [(Resource::Nofile, MAX_OPEN_FILES), (Resource::Core, 0)] {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
            .map_err(|e| format!("resource limit {resource:?}: {e}"))?;
    }
    restrict(walls)?;
    forbid(walls)
}

fn restrict(walls: &Confinement) -> Result<(), String> {
    let failed = |e: &dyn std::fmt::Display| format!("Landlock: {e}");
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .map_err(|e| failed(&e))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(RIGHTS))
        .map_err(|e| failed(&e))?;
    if !walls.network {
        ruleset = ruleset.handle_access(AccessNet::from_all(RIGHTS)).map_err(|e| failed(&e))?;
    }
    let ruleset = ruleset.scope(Scope::from_all(RIGHTS)).map_err(|e| failed(&e))?;
    let mut created = ruleset.create().map_err(|e| failed(&e))?;
    let system = SYSTEM.iter().map(Path::new);
    for path in system.chain(walls.read.iter().map(PathBuf::as_path)) {
        created = allow(created, path, AccessFs::from_read(RIGHTS)).map_err(|e| failed(&e))?;
    }
    let null = [PathBuf::from("/dev/null")];
    for path in walls.write.iter().chain(&null) {
        created = allow(created, path, AccessFs::from_all(RIGHTS)).map_err(|e| failed(&e))?;
    }
    let status = created.restrict_self().map_err(|e| failed(&e))?;
    if status.ruleset == RulesetStatus::NotEnforced || !status.no_new_privs {
        return Err("Landlock: the kernel does not enforce it".to_owned());
    }
    Ok(())
}

/// Allows what is there; what is not cannot be touched anyway.
fn allow(
    ruleset: landlock::RulesetCreated,
    path: &Path,
    access: landlock::BitFlags<AccessFs>,
) -> Result<landlock::RulesetCreated, landlock::RulesetError> {
    let Ok(fd) = PathFd::new(path) else { return Ok(ruleset) };
    // Rights on folders mean nothing on a file, and the kernel refuses them there.
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(RIGHTS) };
    ruleset.add_rule(PathBeneath::new(fd, access))
}

/// System calls a tool has no business with answer as if not permitted.
fn forbid(walls: &Confinement) -> Result<(), String> {
    let failed = |e: &dyn std::fmt::Display| format!("seccomp: {e}");
    let mut forbidden = vec![
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_setns,
        libc::SYS_unshare,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_kexec_load,
        libc::SYS_reboot,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_keyctl,
        libc::SYS_userfaultfd,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_open_by_handle_at,
    ];
    if !walls.network {
        forbidden.push(libc::SYS_socket);
    }
    let arch = std::env::consts::ARCH.try_into().map_err(|e: seccompiler::BackendError| failed(&e))?;
    let rules: BTreeMap<i64, Vec<seccompiler::SeccompRule>> =
        forbidden.into_iter().map(|call| (call, Vec::new())).collect();
    let refusal = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refusal, arch).map_err(|e| failed(&e))?;
    let program: BpfProgram = filter.try_into().map_err(|e: seccompiler::BackendError| failed(&e))?;
    seccompiler::apply_filter(&program).map_err(|e| failed(&e))
}
