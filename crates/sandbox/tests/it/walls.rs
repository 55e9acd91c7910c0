//! A program that tries to get out (`examples/wall_probe`), without walls and within each wall: none gets out, and what is
//! tried does succeed where there is no wall.

use rustix::{
    fs::XattrFlags,
    io::{FdFlags, fcntl_setfd},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram, UnixListener},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;
use toolyard_sandbox::launch::{ConfinedLauncher, Confinement, ProcessLimits, Program};

/// Attempts that must be there.
const LEAST_ATTEMPTS: usize = 60;
/// Attempts that must succeed without walls, whoever runs the tests.
const LEAST_PROVEN: usize = 60;
/// The code with which an attempt that got out ends.
const OUT: i32 = 42;

fn probe() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let probe = tests.parent().and_then(Path::parent).unwrap().join("examples/wall_probe");
    assert!(probe.exists(), "{} is not there: `cargo test -p toolyard-sandbox` builds it", probe.display());
    probe
}

fn launcher() -> ConfinedLauncher {
    ConfinedLauncher::with_program(env!("CARGO_BIN_EXE_toolyard-script"))
}

/// A folder outside of the walls, one to read, one to write, sockets in each, and another process of the user.
struct Place {
    dir: TempDir,
    port: u16,
    name: String,
    victim: Child,
    _listeners: (TcpListener, Vec<UnixListener>, UnixDatagram, File),
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["outside", "read", "write", "data"] {
            fs::create_dir(at(folder)).unwrap();
        }
        fs::write(at("outside/secret"), "SECRET of the user").unwrap();
        for file in ["victim", "append", "truncate", "remove", "rename"] {
            fs::write(at("outside").join(file), "text").unwrap();
        }
        fs::write(at("read/file"), "text").unwrap();
        std::os::unix::fs::symlink(at("outside/secret"), at("read/link")).unwrap();
        // Not every file system has these; then the attempt is not proven.
        rustix::fs::setxattr(at("outside/victim"), "user.secret", b"SECRET", XattrFlags::empty()).ok();
        let sockets = ["outside/toolyard.sock", "read/agent.sock", "write/bus.sock"];
        let mut unix: Vec<UnixListener> = sockets.map(|path| UnixListener::bind(at(path)).unwrap()).into();
        let name = format!("toolyard-probe-{}", dir.path().display());
        unix.push(UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap());
        let datagrams = UnixDatagram::bind(at("outside/datagram.sock")).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        // A descriptor that a library forgot to close.
        let forgotten = File::open(at("outside/secret")).unwrap();
        fcntl_setfd(&forgotten, FdFlags::empty()).unwrap();
        let victim = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        Self { dir, port, name, victim, _listeners: (tcp, unix, datagrams, forgotten) }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn env(&self) -> Vec<(String, String)> {
        let text = |name: &str| self.at(name).display().to_string();
        [
            ("PATH", "/usr/bin:/bin".to_owned()),
            ("PROBE_OUTSIDE", text("outside")),
            ("PROBE_READ", text("read")),
            ("PROBE_WRITE", text("write")),
            ("PROBE_PORT", self.port.to_string()),
            ("PROBE_ABSTRACT", self.name.clone()),
            ("PROBE_VICTIM", self.victim.id().to_string()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.victim.kill().unwrap();
        self.victim.wait().unwrap();
    }
}

struct Attempt {
    name: String,
    needs_network: bool,
    alone: bool,
}

fn attempts() -> Vec<Attempt> {
    let listed = Command::new(probe()).arg("list").output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    let attempt = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        let name = words.next().unwrap();
        Attempt { name, needs_network: words.next().unwrap() == "network", alone: words.next().unwrap() == "alone" }
    };
    text.lines().map(attempt).collect()
}

/// How the probe is started.
enum Wall {
    /// Without walls.
    None,
    /// By the launcher that plugins, MCP servers and git are started with.
    Launcher(Confinement),
    /// As the children of scripts and imports confine themselves.
    Pipes,
}

impl Wall {
    fn command(&self, place: &Place, args: &[String]) -> tokio::process::Command {
        let probe = probe().display().to_string();
        match self {
            Self::Launcher(walls) => {
                let program = Program { program: &probe, args, cwd: None, env: &place.env() };
                launcher().command(walls, &program).unwrap()
            }
            Self::None | Self::Pipes => {
                let mut command = tokio::process::Command::new(probe);
                command.args(args).envs(place.env());
                if matches!(self, Self::Pipes) {
                    command.env_remove("CARGO_MANIFEST_DIR");
                }
                command
            }
        }
    }

    async fn one(&self, place: &Place, name: &str) -> bool {
        let mode = if matches!(self, Self::Pipes) { "pipes" } else { "one" };
        let mut command = self.command(place, &[mode.to_owned(), name.to_owned()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).kill_on_drop(true);
        let ended = tokio::time::timeout(Duration::from_secs(60), command.status()).await;
        ended.is_ok_and(|status| status.unwrap().code() == Some(OUT))
    }

    /// Which attempts get out.
    async fn outs(&self, attempts: &[Attempt]) -> BTreeSet<String> {
        let place = Place::new();
        let walls = match self {
            Self::Launcher(walls) => Self::Launcher(in_place(walls, &place)),
            Self::None => Self::None,
            Self::Pipes => Self::Pipes,
        };
        let (alone, together): (Vec<&Attempt>, Vec<&Attempt>) =
            attempts.iter().partition(|attempt| attempt.alone || matches!(self, Self::Pipes));
        let mut outs = BTreeSet::new();
        if !together.is_empty() {
            let args: Vec<String> =
                ["all".to_owned()].into_iter().chain(together.iter().map(|attempt| attempt.name.clone())).collect();
            let output = walls.command(&place, &args).stdin(Stdio::null()).output().await.unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(text.lines().count(), together.len(), "every attempt is tried: {text}{said}");
            outs.extend(text.lines().filter_map(|line| line.strip_suffix(" out")).map(str::to_owned));
        }
        for attempt in alone {
            if walls.one(&place, &attempt.name).await {
                outs.insert(attempt.name.clone());
            }
        }
        outs
    }
}

/// Grants that begin with `@` are folders of the place.
fn in_place(walls: &Confinement, place: &Place) -> Confinement {
    let full = |paths: &[PathBuf]| paths.iter().map(|path| place.at(&path.display().to_string())).collect::<Vec<_>>();
    let mut read = full(&walls.read);
    read.push(probe());
    Confinement { read, write: full(&walls.write), network: walls.network }
}

#[tokio::test]
async fn nothing_gets_out_of_any_wall() {
    let attempts = attempts();
    assert!(attempts.len() >= LEAST_ATTEMPTS, "{}", attempts.len());
    let with = |read: &[&str], write: &[&str], network| {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect();
        Wall::Launcher(Confinement { read: paths(read), write: paths(write), network })
    };
    let walls = [
        ("plugin", false, with(&[], &["data"], false)),
        ("plugin-network", true, with(&[], &["data"], true)),
        ("plugin-folders", false, with(&["read"], &["data", "write"], false)),
        ("mcp-server", true, with(&["read"], &["write"], true)),
        ("mcp-no-grants", false, with(&[], &[], false)),
        ("import-git", true, with(&[], &["write"], true)),
        ("script-import", false, Wall::Pipes),
    ];
    let proven = Wall::None.outs(&attempts).await;
    let mut outs = BTreeMap::new();
    for (name, _, wall) in &walls {
        outs.insert(*name, wall.outs(&attempts).await);
    }
    let mut escapes = Vec::new();
    println!(
        "{:<28} {:<12} {}",
        "attempt",
        "no walls",
        walls.iter().map(|(name, ..)| format!("{name:<15}")).collect::<String>()
    );
    for attempt in &attempts {
        let mut row = String::new();
        for (wall, network, _) in &walls {
            let is_out = outs[wall].contains(&attempt.name);
            let granted = attempt.needs_network && *network;
            row += &format!(
                "{:<15}",
                if granted {
                    "granted"
                } else if is_out {
                    "OUT"
                } else {
                    "held"
                }
            );
            if is_out != granted {
                escapes.push(format!("{} in {wall}: {}", attempt.name, if is_out { "got out" } else { "was not let" }));
            }
        }
        let alone = if proven.contains(&attempt.name) { "succeeds" } else { "-" };
        println!("{:<28} {alone:<12} {row}", attempt.name);
    }
    let count = walls.len() * attempts.len();
    println!("{} attempts, {} succeed without walls, {count} tried within walls", attempts.len(), proven.len());
    assert!(escapes.is_empty(), "{escapes:#?}");
    assert!(proven.len() >= LEAST_PROVEN, "only {} attempts succeed without walls", proven.len());
}

/// Runs a shell within walls that let it write one folder; what it printed, and its errors.
async fn shell(script: &str, limits: ProcessLimits) -> (std::process::ExitStatus, String, String, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let walls = Confinement { write: vec![dir.path().to_owned()], ..Confinement::default() };
    let env = [
        ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
        ("HOME".to_owned(), dir.path().display().to_string()),
    ];
    let args = ["-c".to_owned(), script.to_owned()];
    let program = Program { program: "/bin/sh", args: &args, cwd: Some(dir.path()), env: &env };
    let output = launcher().limited(limits).command(&walls, &program).unwrap().output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status, text(&output.stdout), text(&output.stderr), dir)
}

#[tokio::test]
async fn modes_and_times_change_where_a_program_may_write() {
    use std::os::unix::fs::MetadataExt;
    let script = "umask 022; echo x > f; chmod 600 f && mkdir d && chmod 700 d && cp -p f g && touch -d 2001-02-03 d/../g \
                  && ln -s g l && chmod 640 l && touch -h l && stat -c %a g";
    let (status, out, err, dir) = shell(script, ProcessLimits::default()).await;
    assert!(status.success(), "{out}{err}");
    assert_eq!(out.trim(), "640");
    let about = fs::metadata(dir.path().join("g")).unwrap();
    assert_eq!((about.mode() & 0o7777, about.mtime() / 86_400), (0o640, 11_356));
    assert_eq!(fs::metadata(dir.path().join("f")).unwrap().mode() & 0o777, 0o600);
}

/// What runs before the walls are up must not obey what the program brings along.
#[tokio::test]
async fn variables_of_the_program_do_not_reach_the_process_that_puts_up_the_walls() {
    let place = Place::new();
    // The loader writes such a file wherever it may: in a process without walls, outside.
    let traces = place.at("outside/loader");
    let env = [
        ("LD_DEBUG".to_owned(), "files".to_owned()),
        ("LD_DEBUG_OUTPUT".to_owned(), traces.display().to_string()),
        ("MINE".to_owned(), "arrived".to_owned()),
        ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
    ];
    let written = || {
        let mut entries = fs::read_dir(place.at("outside")).unwrap().flatten();
        entries.any(|entry| entry.file_name().to_string_lossy().starts_with("loader"))
    };
    let args = ["-c".to_owned(), "echo $MINE".to_owned()];
    let program = Program { program: "sh", args: &args, cwd: None, env: &env };
    let output = launcher().command(&Confinement::default(), &program).unwrap().output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.lines().any(|line| line == "arrived"), "the program gets its variables: {output:?}");
    assert!(!written(), "the launching process obeyed a variable of the program");
    // The attempt is good for something: without walls the file is written.
    assert!(Command::new("/bin/sh").args(["-c", "true"]).envs(env).status().unwrap().success());
    assert!(written(), "this system's loader writes no such file");
}

#[tokio::test]
async fn what_is_hidden_stays_hidden_below_a_folder_that_is_granted() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for folder in ["home/state", "home/notes"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    fs::write(at("home/state/token"), "SECRET").unwrap();
    fs::write(at("home/notes/a"), "note").unwrap();
    std::os::unix::fs::symlink(at("home/state"), at("home/notes/link")).unwrap();
    let walls = Confinement { read: vec![dir.path().to_owned()], write: vec![at("home")], network: false };
    let env = [("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
    let script = "cd \"$1\"/home; cat notes/a; echo new > notes/b && chmod 600 notes/b && echo wrote; \
                  cat state/token notes/link/token; ls state; chmod 644 state/token; mv state elsewhere; echo x > state/token; \
                  ln state/token notes/c; echo end";
    let args = ["-c".to_owned(), script.to_owned(), "sh".to_owned(), dir.path().display().to_string()];
    let program = Program { program: "/bin/sh", args: &args, cwd: None, env: &env };
    let hiding = launcher().hiding([at("home/state")]);
    let output = hiding.command(&walls, &program).unwrap().output().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "notewrote\nend\n", "{output:?}");
    assert_eq!(fs::read(at("home/state/token")).unwrap(), b"SECRET");
}

#[tokio::test]
async fn limits_are_those_that_were_configured() {
    let limits = ProcessLimits { processes: 4, memory_mb: 64 };
    let script = "for i in 1 2 3 4 5 6 7 8; do sleep 5 & done; echo done";
    let (status, _, err, _dir) = shell(script, limits).await;
    assert!(!status.success() && err.contains("fork"), "{status:?} {err}");
    // A pipeline in a substitution is four processes at times, so that limit is out of the way here.
    let limits = ProcessLimits { processes: 16, ..limits };
    let (status, out, err, _dir) = shell("x=$(head -c 200000000 /dev/urandom | base64 -w0); echo took", limits).await;
    assert!(!status.success() && out.is_empty(), "{status:?} {out} {err}");
    assert!(err.contains("more than 64 MiB"), "{err}");
}

#[tokio::test]
async fn nothing_is_left_when_a_program_ends() {
    let seconds = format!("{}", 7_000 + std::process::id() % 1_000);
    let script = format!(
        "(setsid sleep {seconds} >/dev/null 2>&1 &); (sleep {seconds} >/dev/null 2>&1 &); sleep 0.2; echo ended"
    );
    let (status, out, err, _dir) = shell(&script, ProcessLimits::default()).await;
    assert!(status.success() && out.trim() == "ended", "{out}{err}");
    assert!(!sleeps(&seconds), "a process outlived its program");
    let (status, ..) = shell("exit 7", ProcessLimits::default()).await;
    assert_eq!(status.code(), Some(7), "the program's own status is passed on");
}

/// Whether a `sleep` of so many seconds runs.
fn sleeps(seconds: &str) -> bool {
    let wanted = format!("sleep\0{seconds}\0");
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok()).any(|line| line == wanted.as_bytes())
}

/// Programs that plugins and servers are written in run within walls. `make test-tools` names them.
#[tokio::test]
async fn real_programs_run_within_walls() {
    let node = "const {execSync, spawn} = require('child_process'); const fs = require('fs'); \
                fs.writeFileSync('f', 'x'); fs.chmodSync('f', 0o600); fs.utimesSync('f', 1, 1); \
                new Worker(); function Worker() { const {Worker} = require('worker_threads'); \
                new Worker('require(\"worker_threads\").parentPort.postMessage(1)', {eval: true}) \
                .on('message', () => spawn('sh', ['-c', 'echo child']).stdout.on('data', d => console.log('ran ' + d))); } \
                execSync('true');";
    let python = "import subprocess, threading, os, shutil, tempfile, asyncio\n\
                  open('p','w').write('x'); os.chmod('p',0o600); shutil.copy2('p','q')\n\
                  t = threading.Thread(target=lambda: None); t.start(); t.join()\n\
                  async def f():\n    p = await asyncio.create_subprocess_exec('true'); await p.wait()\n\
                  asyncio.run(f())\n\
                  print('ran', subprocess.run(['sh','-c','echo child'], start_new_session=True, capture_output=True).stdout)";
    let git = "git init -q r && cd r && echo x > a && git add a && git -c user.name=a -c user.email=a@b.c commit -qm x && \
               git config a.b c && cd .. && git clone -q r s && echo ran";
    let npm = "mkdir p a && cd p && echo '{\"name\":\"p\",\"version\":\"1.0.0\",\"bin\":{\"x\":\"x.js\"}}' > package.json && \
               printf '#!/usr/bin/env node\\nconsole.log(\"ran\")\\n' > x.js && npm pack --silent > /dev/null && cd ../a && \
               echo '{}' > package.json && npm install --silent --no-audit --no-fund --offline ../p/p-1.0.0.tgz && \
               node_modules/.bin/x";
    let quoted = |code: &str| format!("'{}'", code.replace('\'', "'\\''"));
    let scripts = [
        ("node", format!("node -e {}", quoted(node))),
        ("python3", format!("python3 -c {}", quoted(python))),
        ("git", git.to_owned()),
        ("npm", npm.to_owned()),
        ("perl", "perl -e 'system(q(echo ran))'".to_owned()),
        ("tar", "echo x > f && tar cf t f && tar xf t && gzip f && echo ran".to_owned()),
    ];
    for (program, script) in scripts {
        runs(program, &script).await;
    }
}

/// A program that is missing fails its test, as one that does not run does.
async fn runs(program: &str, script: &str) {
    let (status, out, err, _dir) = shell(script, ProcessLimits::default()).await;
    assert!(status.success() && out.contains("ran"), "{program}: {status:?} {out} {err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a Java runtime: make walls-java"]
async fn java_runs_within_walls() {
    let java = "printf 'public class H { public static void main(String[] a) throws Exception { \
                new ProcessBuilder(\"true\").start().waitFor(); System.out.println(\"ran\"); } }' > H.java && java H.java";
    runs("java", java).await;
}
