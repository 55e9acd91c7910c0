//! Runs a command under ptrace and records every program that it, or a process it started, executes. The kernel stops the
//! process at each `execve`, so none can be missed, however briefly it runs.

use nix::{
    errno::Errno,
    sys::{
        ptrace::{self, Event, Options},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A program that was executed.
#[derive(Debug, Clone)]
pub(crate) struct Executed {
    /// The file of the program.
    pub(crate) program: PathBuf,
    /// Its arguments, with spaces between them.
    pub(crate) arguments: String,
    /// Whether it started in the sandbox: with a seccomp filter, and unable to gain privileges.
    pub(crate) confined: bool,
}

/// What a traced command printed, how it ended, and what was executed.
pub(crate) struct Traced {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) executed: Vec<Executed>,
}

/// Runs a program with nothing of this process's environment but the variables given.
pub(crate) fn trace(program: &Path, args: &[String], env: &[(String, String)], scratch: &Path) -> Traced {
    let (out, err) = (scratch.join("stdout"), scratch.join("stderr"));
    // The shell waits for a line, so that it is traced before it becomes the program.
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "read go; exec \"$@\"", "sh"]).arg(program).args(args);
    command.env_clear().envs(env.iter().map(|(key, value)| (key, value)));
    command.stdin(Stdio::piped()).stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
    // The thread that attaches is the tracer; it waits for its own children and tracees only.
    let followed = std::thread::spawn(move || {
        #[allow(clippy::zombie_processes)] // `follow` waits for it, with all that it starts
        let mut child = command.spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let options = Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_EXITKILL;
        ptrace::seize(pid, options).expect("this test traces its own child; ptrace must be allowed");
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        follow(pid)
    });
    let (code, executed) = followed.join().unwrap();
    let read = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    Traced { code, stdout: read(&out), stderr: read(&err), executed }
}

fn follow(first: Pid) -> (i32, Vec<Executed>) {
    let mut executed = Vec::new();
    let mut code = -1;
    loop {
        let stopped = match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
            Err(Errno::ECHILD) => return (code, executed),
            Err(Errno::EINTR) => continue,
            other => other.unwrap(),
        };
        let (pid, signal) = match stopped {
            WaitStatus::Exited(pid, status) => {
                if pid == first {
                    code = status;
                }
                continue;
            }
            WaitStatus::Signaled(..) => continue,
            WaitStatus::PtraceEvent(pid, _, event) => {
                // The shell that waits to be traced may be seen as well.
                let is_starter = |seen: &Executed| pid == first && seen.arguments.starts_with("/bin/sh -c read go;");
                if event == Event::PTRACE_EVENT_EXEC as i32 {
                    executed.extend(Some(look_at(pid)).filter(|seen| !is_starter(seen)));
                }
                (pid, None)
            }
            WaitStatus::Stopped(pid, signal) => (pid, Some(signal)),
            other => (other.pid().unwrap(), None),
        };
        // A process that was killed in the meantime cannot be continued.
        match ptrace::cont(pid, signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(other) => panic!("{pid}: {other}"),
        }
    }
}

fn look_at(pid: Pid) -> Executed {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).unwrap_or_default();
    let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    Executed {
        program: std::fs::read_link(format!("/proc/{pid}/exe")).unwrap(),
        arguments: String::from_utf8_lossy(&arguments).replace('\0', " "),
        confined: field("Seccomp:") == "2" && field("NoNewPrivs:") == "1",
    }
}
