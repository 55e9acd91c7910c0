//! A PostgreSQL server of the test's own, with and without a pooler in front.
//!
//! The programs come from Debian's packages `postgresql` and `pgbouncer`. The server runs in a temporary folder, listens on
//! a Unix socket there and nowhere else, and ends with the test's process, however that ends.

use super::Home;
use std::{
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use toolyard_postgres::{PostgresOptions, PostgresStore};

const POOLER_PORT: u16 = 6432;

/// A server in a folder of its own.
pub struct Server {
    pub dir: PathBuf,
    /// Its end closes the pipe that keeps the server running.
    _keeper: Child,
}

static NUMBER: AtomicU64 = AtomicU64::new(1);

/// The folder of PostgreSQL's programs, the newest version.
fn programs() -> PathBuf {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.filter_map(|version| Some(version.ok()?.path().join("bin"))).collect())
        .unwrap_or_default();
    found.sort();
    assert!(!found.is_empty(), "PostgreSQL is not installed: apt-get install postgresql pgbouncer");
    found.swap_remove(found.len() - 1)
}

/// PostgreSQL and PgBouncer refuse to run as root.
fn unprivileged(command: &mut Command) -> &mut Command {
    if !rustix::process::getuid().is_root() {
        return command;
    }
    let (uid, gid) = postgres_user();
    command.uid(uid).gid(gid)
}

fn postgres_user() -> (u32, u32) {
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let of = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let fields: Vec<&str> = line.split(':').collect();
        Some((fields[2].parse().ok()?, fields[3].parse().ok()?))
    };
    of("postgres").or_else(|| of("nobody")).unwrap()
}

fn run(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

/// Starts a program that ends when this process ends or drops the child: a shell keeps it as long as its input is open.
fn keep(program: &Path, arguments: &[&str], dir: &Path) -> Child {
    let script = "p=\"$1\"; shift; \"$p\" \"$@\" >\"$LOG\" 2>&1 & pid=$!; cat >/dev/null; kill -INT $pid; wait $pid";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script, "sh"]).arg(program).args(arguments).current_dir(dir);
    command.env("LOG", dir.join(format!("{}.log", program.file_name().unwrap().to_str().unwrap())));
    unprivileged(&mut command).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < super::PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Server {
    pub fn start() -> Self {
        // Kept: the server writes there until after this process has ended.
        let dir = tempfile::Builder::new().prefix("toolyard-pg").tempdir().unwrap().keep();
        if rustix::process::getuid().is_root() {
            let (uid, gid) = postgres_user();
            std::os::unix::fs::chown(&dir, Some(uid), Some(gid)).unwrap();
        }
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        let data = dir.join("data");
        let mut initdb = Command::new(programs().join("initdb"));
        initdb.args(["--auth=trust", "-U", "toolyard", "-E", "UTF8", "--locale=C", "--no-sync", "-D"]).arg(&data);
        assert!(run(unprivileged(&mut initdb).current_dir(&dir)), "initdb failed");
        let server = Self { _keeper: Self::launch(&dir), dir };
        until("the server never answered", || server.is_ready());
        server
    }

    fn launch(dir: &Path) -> Child {
        let (data, socket) = (dir.join("data"), dir.to_str().unwrap());
        let data = data.to_str().unwrap();
        let arguments = ["-D", data, "-k", socket, "-c", "listen_addresses=", "-c", "max_connections=400"];
        keep(&programs().join("postgres"), &arguments, dir)
    }

    fn is_ready(&self) -> bool {
        run(Command::new(programs().join("pg_isready")).arg("-h").arg(&self.dir))
    }

    /// Kills the server and all its processes, as a crash of its machine does.
    pub fn kill(&self) {
        let pid = std::fs::read_to_string(self.dir.join("data/postmaster.pid")).unwrap();
        let pid = pid.lines().next().unwrap().to_owned();
        assert!(run(Command::new("kill").args(["-9", &pid])));
        until("the server did not die", || !self.is_ready());
    }

    /// Starts it again.
    pub fn restart(&mut self) {
        until("the server did not start again", || {
            if self.is_ready() {
                return true;
            }
            self._keeper = Self::launch(&self.dir);
            std::thread::sleep(Duration::from_millis(300));
            self.is_ready()
        });
    }

    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = Command::new(programs().join("psql"));
        psql.arg("-h").arg(&self.dir).args([
            "-U",
            "toolyard",
            "-d",
            database,
            "-v",
            "ON_ERROR_STOP=1",
            "-qAt",
            "-c",
            sql,
        ]);
        let output = psql.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same for what may fail: whether it was carried out.
    pub fn try_sql(&self, database: &str, sql: &str) -> bool {
        run(Command::new(programs().join("psql")).arg("-h").arg(&self.dir).args([
            "-U",
            "toolyard",
            "-d",
            database,
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            sql,
        ]))
    }

    /// A new, empty database.
    pub fn database(&self) -> String {
        let name = format!("d{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        name
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://toolyard@{}/{database}", self.dir.to_str().unwrap().replace('/', "%2F"))
    }
}

pub fn open(url: &str, node: &str) -> PostgresStore {
    try_open(url, node).unwrap()
}

pub fn try_open(url: &str, node: &str) -> Result<PostgresStore, toolyard_engine::store::StoreError> {
    PostgresStore::open(PostgresOptions {
        url: url.to_owned(),
        node: node.to_owned(),
        home: node.to_owned(),
        serves: true,
        allow_async_replication: false,
        secret: None,
        is_moved: false,
        large_blobs: None,
    })
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

fn pooler() -> &'static (Child, PathBuf) {
    static POOLER: OnceLock<(Child, PathBuf)> = OnceLock::new();
    POOLER.get_or_init(|| {
        let dir = server().dir.clone();
        let socket = dir.to_str().unwrap();
        let config = dir.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host={socket} user=toolyard\n[pgbouncer]\npool_mode = transaction\nauth_type = any\n\
             listen_addr =\nlisten_port = {POOLER_PORT}\nunix_socket_dir = {socket}\nmax_client_conn = 500\n\
             default_pool_size = 6\n"
        );
        std::fs::write(&config, text).unwrap();
        let program = Path::new("/usr/sbin/pgbouncer");
        assert!(program.exists(), "PgBouncer is not installed: apt-get install pgbouncer");
        let child = keep(program, &[config.to_str().unwrap()], &dir);
        let ready = dir.join(format!(".s.PGSQL.{POOLER_PORT}"));
        until("the pooler never answered", || ready.exists());
        (child, dir)
    })
}

pub struct PostgresHome {
    pub database: String,
}

impl PostgresHome {
    pub fn url(&self) -> String {
        server().url(&self.database)
    }

    pub fn sql(&self, sql: &str) -> String {
        server().sql(&self.database, sql)
    }
}

impl Home for PostgresHome {
    type Store = PostgresStore;
    const NAME: &'static str = "postgres";
    fn new() -> Self {
        Self { database: server().database() }
    }
    fn open(&self) -> PostgresStore {
        open(&self.url(), &format!("node-{}", NUMBER.fetch_add(1, Ordering::Relaxed)))
    }
    fn address(&self) -> PathBuf {
        PathBuf::from(self.url())
    }
}

pub struct PooledHome {
    url: String,
    database: String,
}

impl PooledHome {
    /// Asks the server, past the pooler.
    pub fn sql(&self, sql: &str) -> String {
        server().sql(&self.database, sql)
    }
}

impl Home for PooledHome {
    type Store = PostgresStore;
    const NAME: &'static str = "pooled";
    fn new() -> Self {
        let socket = pooler().1.to_str().unwrap().replace('/', "%2F");
        let database = server().database();
        Self { url: format!("postgres://toolyard@{socket}:{POOLER_PORT}/{database}"), database }
    }
    fn open(&self) -> PostgresStore {
        open(&self.url, &format!("node-{}", NUMBER.fetch_add(1, Ordering::Relaxed)))
    }
    fn address(&self) -> PathBuf {
        PathBuf::from(&self.url)
    }
}
