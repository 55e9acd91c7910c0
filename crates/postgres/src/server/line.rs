//! A connection that the calling thread drives itself. The group commit uses one: a caller that waits for its own commit
//! sends it and reads the answer without waking another thread.

use super::{
    Server, Trouble,
    socket::{Ends, WaitingSocket},
    tls::{self, RustlsConnect},
};
use crate::limits;
use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Instant,
};
use tokio_postgres::{Client, Connection, Row, config::Host, tls::MakeTlsConnect};

/// The port of a URL that names none.
const DEFAULT_PORT: u16 = 5432;

/// What the server says of a connection: its role, and the two ends of the connection as it sees them.
const DESCRIBE: &str = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean,
    host(inet_client_addr()), inet_client_port(), host(inet_server_addr()), inet_server_port(), pg_backend_pid()";

/// The connection.
pub(crate) struct Line {
    /// `None` while the connection is being closed.
    client: Option<Arc<Client>>,
    /// `None` once it has ended: what waits for an answer then learns that none will come.
    connection: Option<Connection<WaitingSocket, tls::Stream<WaitingSocket>>>,
    socket: WaitingSocket,
    is_direct: bool,
}

enum Target {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Line {
    /// Connects to the first server of the URL that takes writes.
    pub(crate) fn open(server: &Server) -> Result<Self, Trouble> {
        let config = &server.config;
        let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
        let mut last = Trouble::Away("store.url names no host".to_owned());
        for number in 0..hosts.len().max(addresses.len()) {
            let port = ports.get(number).or(ports.first()).copied().unwrap_or(DEFAULT_PORT);
            let (host, address) = (hosts.get(number), addresses.get(number));
            let name = match host {
                Some(Host::Tcp(name)) => name.as_str(),
                _ => "",
            };
            let targets = targets(host, address, port).unwrap_or_else(|error| {
                last = Trouble::Away(format!("{name} cannot be resolved: {error}"));
                Vec::new()
            });
            for target in targets {
                match Self::open_at(server, name, &target) {
                    Ok(line) => return Ok(line),
                    Err(trouble) => last = trouble,
                }
            }
        }
        Err(last)
    }

    fn open_at(server: &Server, name: &str, target: &Target) -> Result<Self, Trouble> {
        let until = Instant::now() + limits::STATEMENT_TIMEOUT;
        let away = |error: io::Error| Trouble::Away(error.to_string());
        let socket = match target {
            Target::Tcp(address) => WaitingSocket::tcp(*address),
            Target::Unix(path) => WaitingSocket::unix(path),
        }
        .map_err(away)?;
        let mut tls = RustlsConnect::new(&server.trust).map_err(Trouble::Away)?;
        let tls = MakeTlsConnect::<WaitingSocket>::make_tls_connect(&mut tls, name).map_err(away)?;
        let mut connecting = pin!(server.config.connect_raw(socket.clone(), tls));
        let connected = socket.drive(until, |context| connecting.as_mut().poll(context));
        let (client, connection) = connected.ok_or_else(no_answer)??;
        let mut line = Self { client: Some(Arc::new(client)), connection: Some(connection), socket, is_direct: false };
        let rows = line.query(DESCRIBE, &[])?;
        let Some(row) = rows.first() else { return Err(no_answer()) };
        if row.try_get(0)? {
            return Err(Trouble::Away("the server takes no writes".to_owned()));
        }
        let ends = line.socket.ends().map_err(away)?;
        line.is_direct = is_direct(ends, row)?;
        Ok(line)
    }

    /// Whether nothing that shares connections (a pooler) is between this process and the server.
    pub(crate) fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// What sends statements. `None` for a connection that has ended.
    pub(crate) fn client(&self) -> Option<Arc<Client>> {
        self.client.clone().filter(|client| self.connection.is_some() && !client.is_closed())
    }

    /// Waits for work that uses [`Line::client`]. `None` when `until` has passed; it may be called again then.
    pub(crate) fn call<T, F: Future<Output = T> + ?Sized>(
        &mut self,
        mut work: Pin<&mut F>,
        until: Instant,
    ) -> Option<T> {
        let Self { connection, socket, .. } = self;
        socket.drive(until, |context| {
            if let Poll::Ready(answer) = work.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            poll_connection(connection, context);
            work.as_mut().poll(context)
        })
    }

    /// Runs a statement without a name.
    pub(crate) fn query(&mut self, sql: &str, params: &[super::Param<'_>]) -> Result<Vec<Row>, Trouble> {
        let client = self.client().ok_or_else(no_answer)?;
        let until = Instant::now() + limits::STATEMENT_TIMEOUT;
        let rows = self.call(pin!(client.query_typed(sql, params)), until);
        Ok(rows.ok_or_else(no_answer)??)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.client = None;
        // Sends that this side ends, so that the server does not log a client that vanished.
        poll_connection(&mut self.connection, &mut Context::from_waker(Waker::noop()));
    }
}

/// Reads and writes what is ready. A connection that has ended is dropped.
fn poll_connection(
    connection: &mut Option<Connection<WaitingSocket, tls::Stream<WaitingSocket>>>,
    context: &mut Context<'_>,
) {
    while let Some(open) = connection {
        match open.poll_message(context) {
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(Some(Err(_)) | None) => *connection = None,
            Poll::Pending => return,
        }
    }
}

pub(crate) fn no_answer() -> Trouble {
    Trouble::Away("the server does not answer".to_owned())
}

fn targets(host: Option<&Host>, address: Option<&IpAddr>, port: u16) -> io::Result<Vec<Target>> {
    Ok(match (address, host) {
        (Some(address), _) => vec![Target::Tcp(SocketAddr::new(*address, port))],
        (None, Some(Host::Tcp(name))) => (name.as_str(), port).to_socket_addrs()?.map(Target::Tcp).collect(),
        (None, Some(Host::Unix(folder))) => vec![Target::Unix(folder.join(format!(".s.PGSQL.{port}")))],
        (None, None) => Vec::new(),
    })
}

/// Whether both sides see the same connection. Through a pooler each sees one of its own: over TCP the addresses and ports
/// differ, and on a Unix socket the process that listens is not the parent of the process that answers. Where addresses
/// are translated on the way they differ as well; the answer is then the safe one.
fn is_direct(ends: Ends, row: &Row) -> Result<bool, Trouble> {
    let address = |ip: usize, port: usize| -> Result<Option<(IpAddr, i32)>, tokio_postgres::Error> {
        let (ip, port): (Option<&str>, Option<i32>) = (row.try_get(ip)?, row.try_get(port)?);
        Ok(ip.and_then(|ip| ip.parse::<IpAddr>().ok()).zip(port).map(|(ip, port)| (ip.to_canonical(), port)))
    };
    let (client, server) = (address(1, 2)?, address(3, 4)?);
    let backend: i32 = row.try_get(5)?;
    let seen = |end: SocketAddr| Some((end.ip().to_canonical(), i32::from(end.port())));
    Ok(match ends {
        Ends::Tcp { local, peer } => client == seen(local) && server == seen(peer),
        Ends::Unix { listener } => client.is_none() && parent_of(backend) == Some(listener),
    })
}

/// The parent of a process of this machine.
fn parent_of(process: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold any character; the state and the parent follow it.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}
