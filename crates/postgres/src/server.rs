//! The server: its address, TLS, connections, and which servers are refused.

use crate::limits;
use std::{
    path::PathBuf,
    str::FromStr,
    sync::{Mutex, PoisonError},
    time::Instant,
};
use tokio::sync::Semaphore;
use tokio_postgres::{
    Client, Config, Connection, Row, Socket,
    config::SslMode,
    error::SqlState,
    types::{ToSql, Type},
};
use toolyard_engine::store::StoreError;

mod advice;
mod line;
mod socket;
mod tls;

pub(crate) use line::{Line, no_answer};
use tls::{RustlsConnect, Trust};

/// A statement's argument.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// The reason for which a statement failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The server refuses this statement and would refuse it again.
    Refused { state: SqlState, message: String, detail: String },
    /// The server cannot be reached, is about to stop, or does not take writes. Whether the statement was carried out is
    /// unknown.
    Away(String),
    /// Two transactions were in each other's way. Nothing was done.
    Again(String),
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(db) = error.as_db_error() else { return Self::Away(with_source(&error)) };
        let state = db.code().clone();
        let message = db.message().to_owned();
        if state == SqlState::T_R_DEADLOCK_DETECTED || state == SqlState::T_R_SERIALIZATION_FAILURE {
            return Self::Again(message);
        }
        let is_away = [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::READ_ONLY_SQL_TRANSACTION,
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::DISK_FULL,
            SqlState::OUT_OF_MEMORY,
        ]
        .contains(&state)
            || state.code().starts_with("08");
        match is_away {
            true => Self::Away(message),
            false => Self::Refused { state, message, detail: db.detail().unwrap_or_default().to_owned() },
        }
    }
}

impl From<Trouble> for StoreError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Refused { state, message, .. } => {
                Self::failed(format!("the database refuses this: {}", advice::refused(&state, &message)))
            }
            Trouble::Away(message) => Self::failed(format!("the database cannot be used now: {message}")),
            Trouble::Again(message) => Self::failed(format!("the database is too busy: {message}")),
        }
    }
}

fn with_source(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {}", advice::explained(&source.to_string())),
        None => advice::explained(&error.to_string()),
    }
}

/// Where the database is and how it is reached.
#[derive(Clone)]
pub(crate) struct Server {
    config: Config,
    trust: Trust,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({:?})", self.config.get_hosts())
    }
}

/// The address without what is secret in it, for messages.
pub fn describe_url(url: &str) -> String {
    match Config::from_str(&split_options(url).0) {
        Ok(config) => {
            let hosts: Vec<String> = config
                .get_hosts()
                .iter()
                .map(|host| match host {
                    tokio_postgres::config::Host::Tcp(name) => name.clone(),
                    tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
                })
                .collect();
            format!("{} on {}", config.get_dbname().unwrap_or("the default database"), hosts.join(", "))
        }
        Err(_) => "an address that cannot be read".to_owned(),
    }
}

/// Takes the options out of a URL that the client library does not know: `sslmode` has two more values, and `sslrootcert`
/// names a file.
fn split_options(url: &str) -> (String, Option<String>, Option<PathBuf>) {
    let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), None, None) };
    let (mut kept, mut mode, mut root) = (Vec::new(), None, None);
    for option in query.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value.to_owned()),
            Some(("sslrootcert", value)) => root = Some(PathBuf::from(value.replace("%2F", "/").replace("%2f", "/"))),
            _ => kept.push(option),
        }
    }
    let kept = if kept.is_empty() { base.to_owned() } else { format!("{base}?{}", kept.join("&")) };
    (kept, mode, root)
}

impl Server {
    pub(crate) fn parse(url: &str) -> Result<Self, StoreError> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(StoreError::failed("store.url must begin with postgres:// or postgresql://"));
        }
        let (url, mode, root) = split_options(url);
        // The message of the library may repeat the password.
        let mut config = Config::from_str(&url).map_err(|_| {
            StoreError::failed("store.url cannot be read: it should be postgres://USER:PASSWORD@HOST:PORT/DATABASE")
        })?;
        let (mode, trust) = match (mode.as_deref(), root) {
            (Some("disable"), _) => (SslMode::Disable, Trust::Anyone),
            (None | Some("prefer" | "allow"), None) => (SslMode::Prefer, Trust::Anyone),
            (Some("require"), None) => (SslMode::Require, Trust::Anyone),
            (Some("verify-full" | "require" | "prefer" | "allow") | None, Some(file)) => {
                (SslMode::Require, Trust::File(file))
            }
            (Some("verify-full"), None) => (SslMode::Require, Trust::System),
            (Some(other), _) => {
                return Err(StoreError::failed(format!(
                    "store.url: sslmode={other} is not one of disable, prefer, require, verify-full"
                )));
            }
        };
        config.ssl_mode(mode).connect_timeout(limits::CONNECT_TIMEOUT).application_name("toolyard");
        config.tcp_user_timeout(limits::STATEMENT_TIMEOUT).keepalives_idle(limits::STATEMENT_TIMEOUT);
        Ok(Self { config, trust })
    }

    /// Opens a connection. Its own task ends when the client is dropped.
    pub(crate) async fn connect(&self) -> Result<Client, Trouble> {
        let (client, connection) = self.open().await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = with_source(&error), "a connection to the database ended");
            }
        });
        Ok(client)
    }

    /// Opens a connection whose messages the caller reads.
    pub(crate) async fn open(&self) -> Result<(Client, Connection<Socket, tls::Stream<Socket>>), Trouble> {
        let connector = RustlsConnect::new(&self.trust).map_err(Trouble::Away)?;
        let connecting = tokio::time::timeout(limits::STATEMENT_TIMEOUT, self.config.connect(connector));
        match connecting.await {
            Ok(connected) => Ok(connected?),
            Err(_) => Err(Trouble::Away("the server does not answer".to_owned())),
        }
    }
}

/// Connections for everything but the group commit.
pub(crate) struct Pool {
    pub(crate) server: Server,
    idle: Mutex<Vec<Client>>,
    places: Semaphore,
}

impl Pool {
    pub(crate) fn new(server: Server) -> Self {
        Self { server, idle: Mutex::default(), places: Semaphore::new(limits::POOL) }
    }

    /// Runs a statement, once.
    pub(crate) async fn once(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Trouble> {
        let _place = self.places.acquire().await.map_err(|_| Trouble::Away("the store is closed".to_owned()))?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let client = match idle.filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => self.server.connect().await?,
        };
        let answer = match tokio::time::timeout(limits::STATEMENT_TIMEOUT, client.query_typed(sql, params)).await {
            Ok(answer) => answer.map_err(Trouble::from),
            // The connection is not used again: its answer may still come.
            Err(_) => return Err(Trouble::Away("the server does not answer".to_owned())),
        };
        if !matches!(answer, Err(Trouble::Away(_))) && !client.is_closed() {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < limits::IDLE_CONNECTIONS {
                idle.push(client);
            }
        }
        answer
    }

    /// Runs a statement that may be repeated, until the server answers or [`limits::READ_PATIENCE`] has passed.
    pub(crate) async fn retry(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        let began = Instant::now();
        loop {
            match self.once(sql, params).await {
                Err(Trouble::Away(_) | Trouble::Again(_)) if began.elapsed() < limits::READ_PATIENCE => {
                    // Idle connections of a server that went away are of no use either.
                    self.idle.lock().unwrap_or_else(PoisonError::into_inner).retain(|client| !client.is_closed());
                    tokio::time::sleep(limits::RETRY).await;
                }
                answer => return answer.map_err(StoreError::from),
            }
        }
    }
}

/// What is known of a server.
#[derive(Debug, Clone)]
pub struct ServerReport {
    /// Its version, as it says it.
    pub version: String,
    /// Whether it takes no writes: a standby.
    pub is_read_only: bool,
    /// Standbys that are connected.
    pub standbys: i64,
    /// Whether a commit waits for a standby.
    pub is_synchronous: bool,
    /// Whether a commit waits for the server's own disk.
    pub is_durable: bool,
    number: i32,
}

impl ServerReport {
    pub(crate) async fn ask(client: &Client) -> Result<Self, Trouble> {
        let sql = "SELECT current_setting('server_version'), current_setting('server_version_num')::int4,
                pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean,
                (SELECT count(*) FROM pg_stat_replication WHERE coalesce(state, 'streaming') = 'streaming'),
                current_setting('synchronous_standby_names') <> ''
                    AND current_setting('synchronous_commit') IN ('on', 'remote_apply', 'remote_write'),
                current_setting('synchronous_commit') <> 'off' AND current_setting('fsync')::boolean";
        let rows = client.query_typed(sql, &[]).await?;
        let Some(row) = rows.first() else { return Err(Trouble::Away("the server says nothing of itself".to_owned())) };
        Ok(Self {
            version: row.try_get(0)?,
            number: row.try_get(1)?,
            is_read_only: row.try_get(2)?,
            standbys: row.try_get(3)?,
            is_synchronous: row.try_get(4)?,
            is_durable: row.try_get(5)?,
        })
    }

    /// Why this server is not used.
    pub fn problem(&self, allow_async: bool) -> Option<String> {
        let Self { version, standbys, .. } = self;
        if self.number < limits::MIN_SERVER_VERSION {
            let least = limits::MIN_SERVER_VERSION / 10_000;
            return Some(format!("PostgreSQL {version} is too old: {least} is the oldest that is supported"));
        }
        if self.is_read_only {
            return Some(
                "the server takes no writes: it is a standby or set to read-only; name the primary".to_owned(),
            );
        }
        if !self.is_durable {
            return Some(
                "the server acknowledges commits before they are on its disk (synchronous_commit or fsync is off)"
                    .to_owned(),
            );
        }
        (*standbys > 0 && !self.is_synchronous && !allow_async).then(|| {
            format!(
                "the server replicates asynchronously to {standbys} standby: a failover loses acknowledged calls. Set \
                 synchronous_standby_names on the server, or store.allowAsyncReplication = true to accept it"
            )
        })
    }
}

/// Asks a server what it is, without opening a store there. Blocks.
pub fn check_server(url: &str) -> Result<ServerReport, StoreError> {
    let server = Server::parse(url)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| StoreError::failed(format!("no thread for the database: {e}")))?;
    // A thread of its own: the caller may be on a runtime.
    let asked = std::thread::spawn(move || {
        runtime.block_on(async {
            let client = server.connect().await?;
            ServerReport::ask(&client).await.map_err(StoreError::from)
        })
    });
    asked.join().unwrap_or_else(|_| Err(StoreError::failed("asking the database failed unexpectedly")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_its_password_never_shown() {
        let url = "postgres://me:s3cret@db.example:5433/yard?sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem";
        let server = Server::parse(url).unwrap();
        assert!(matches!(&server.trust, Trust::File(path) if path == &PathBuf::from("/etc/ca.pem")));
        assert_eq!(server.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(describe_url(url), "yard on db.example");
        assert!(!format!("{server:?}").contains("s3cret"));
        for bad in ["mysql://x/y", "postgres://me:s3cret@:bad:/", "postgres://h/d?sslmode=sometimes"] {
            let error = Server::parse(bad).unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn servers_that_cannot_keep_the_promise_are_refused() {
        let good = ServerReport {
            version: "15.1".into(),
            number: 150_001,
            is_read_only: false,
            standbys: 0,
            is_synchronous: false,
            is_durable: true,
        };
        assert_eq!(good.problem(false), None);
        let replicated = ServerReport { standbys: 1, ..good.clone() };
        assert!(replicated.problem(false).unwrap().contains("asynchronously"));
        assert_eq!(replicated.problem(true), None);
        assert_eq!(ServerReport { is_synchronous: true, ..replicated }.problem(false), None);
        assert!(ServerReport { number: 130_004, ..good.clone() }.problem(true).unwrap().contains("too old"));
        assert!(ServerReport { is_read_only: true, ..good.clone() }.problem(true).unwrap().contains("standby"));
        assert!(ServerReport { is_durable: false, ..good }.problem(true).unwrap().contains("synchronous_commit"));
    }
}
