//! The secret that a client of the local sockets must send as its first line.
//!
//! The peer's user id does not distinguish the owner's command line from a plugin that runs as the same user. The
//! secret does: it is a private file in the home's `state/` folder, which confined programs cannot read. Every server
//! start creates a new secret.

use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};
use subtle::ConstantTimeEq;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use toolyard_protocol::WorkspaceId;

/// Name of the secret's file, in the folder of the sockets.
const FILE: &str = "local.secret";
/// Number of random bytes in a secret.
const SECRET_BYTES: usize = 32;
/// Maximum length of the first line.
const MAX_FIRST_LINE: usize = 256;
/// Timeout of a client's first line.
const FIRST_LINE_WITHIN: Duration = Duration::from_secs(10);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FirstLine {
    secret: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workspace: Option<String>,
}

/// What the first line of an admitted client says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admitted {
    /// The workspace in which the client works, as the person named it; the default one where it is absent.
    pub workspace: Option<String>,
}

/// The secret of the running server.
#[derive(Clone)]
pub struct LocalSecret(String);

impl LocalSecret {
    /// Creates a new secret and writes it to the folder of the sockets, replacing that of an earlier start.
    pub fn create(folder: &Path) -> io::Result<Self> {
        let mut bytes = [0u8; SECRET_BYTES];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
        }
        let secret = toolyard_protocol::canonical::hex(&bytes);
        let staged = folder.join(format!("{FILE}.{}", std::process::id()));
        match fs::remove_file(&staged) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staged)?;
        file.write_all(secret.as_bytes())?;
        file.sync_all()?;
        fs::rename(&staged, folder.join(FILE))?;
        Ok(Self(secret))
    }

    /// Reads the secret of the server behind a socket.
    pub fn of_socket(socket: &Path) -> io::Result<Self> {
        let path = Self::file(socket);
        let text = fs::read_to_string(&path).map_err(|error| {
            let why = format!("the secret of the local socket cannot be read from {}: {error}", path.display());
            io::Error::new(error.kind(), why)
        })?;
        Ok(Self(text.trim().to_owned()))
    }

    /// The path of a socket's secret.
    pub fn file(socket: &Path) -> PathBuf {
        socket.with_file_name(FILE)
    }

    /// Reads a client's first line and compares the secret. `None` if it is another one. Nothing beyond that line is read.
    pub async fn admits(&self, stream: &mut (impl AsyncRead + Unpin)) -> Option<Admitted> {
        let line = tokio::time::timeout(FIRST_LINE_WITHIN, first_line(stream)).await.ok()?.ok()??;
        let sent: FirstLine = serde_json::from_slice(&line).ok()?;
        let is_ours = bool::from(sent.secret.as_bytes().ct_eq(self.0.as_bytes()));
        is_ours.then_some(Admitted { workspace: sent.workspace })
    }

    /// Sends the first line of a client that works in a workspace.
    pub async fn send(&self, workspace: &WorkspaceId, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        stream.write_all(self.first_line(workspace)?.as_bytes()).await
    }

    /// The first line, including its line break.
    pub fn first_line(&self, workspace: &WorkspaceId) -> io::Result<String> {
        let workspace = (!workspace.is_default()).then(|| workspace.to_string());
        Ok(serde_json::to_string(&FirstLine { secret: self.0.clone(), workspace })? + "\n")
    }
}

/// Reads byte by byte, because the bytes after the line belong to the protocol. Returns `None` at the end of the stream
/// or when the line is too long.
async fn first_line(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::with_capacity(MAX_FIRST_LINE);
    let mut byte = [0u8; 1];
    while line.len() < MAX_FIRST_LINE {
        if stream.read(&mut byte).await? == 0 {
            return Ok(None);
        }
        if byte[0] == b'\n' {
            return Ok(Some(line));
        }
        line.push(byte[0]);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[tokio::test]
    async fn only_the_secret_of_this_start_is_admitted() {
        let folder = tempfile::tempdir().unwrap();
        let before = LocalSecret::create(folder.path()).unwrap();
        let secret = LocalSecret::create(folder.path()).unwrap();
        let socket = folder.path().join("x.sock");
        let mode = fs::metadata(LocalSecret::file(&socket)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = LocalSecret::of_socket(&socket).unwrap();
        let (none, bob) = (WorkspaceId::default(), WorkspaceId::parse("bob").unwrap());
        let mut good = Vec::new();
        for (workspace, named) in [(&bob, Some("bob")), (&none, None)] {
            good.clear();
            read.send(workspace, &mut good).await.unwrap();
            good.extend_from_slice(b"rest");
            let mut stream = good.as_slice();
            let admitted = Admitted { workspace: named.map(str::to_owned) };
            assert_eq!(secret.admits(&mut stream).await, Some(admitted));
            assert_eq!(stream, b"rest", "nothing beyond the line is read");
        }
        let mut bad: Vec<Vec<u8>> =
            vec![b"{}\n".to_vec(), b"\n".to_vec(), b"{\"secret\":\"\"}\n".to_vec(), vec![b'x'; 5000]];
        bad.push(before.first_line(&none).unwrap().into_bytes());
        bad.push(before.first_line(&bob).unwrap().into_bytes());
        bad.push(good[..40].to_vec());
        for line in bad {
            assert_eq!(secret.admits(&mut line.as_slice()).await, None, "{:?}", String::from_utf8_lossy(&line));
        }
    }
}
