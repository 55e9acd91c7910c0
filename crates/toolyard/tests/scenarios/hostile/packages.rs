//! Makes packages: tar archives byte by byte, and a registry of npm on loopback that serves them.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};
use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

/// One entry of a tar archive. `kind` is the type of the format: `0` a file, `1` a hard link, `2` a symbolic link, `3` a
/// device, `5` a folder, `6` a pipe.
pub(crate) fn entry(name: &str, kind: u8, target: &str, content: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000755\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(157, target.as_bytes());
    put(257, b"ustar\x0000");
    put(329, b"0000001\0");
    put(337, b"0000003\0");
    let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut bytes = header.to_vec();
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// A gzipped archive of entries.
pub(crate) fn packed(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    for entry in entries {
        packer.write_all(entry).unwrap();
    }
    packer.write_all(&[0; 1024]).unwrap();
    packer.finish().unwrap()
}

/// A gzipped archive of files below `package/`, as npm packs them.
pub(crate) fn npm_tarball(files: &[(&str, &str)]) -> Vec<u8> {
    let entries: Vec<Vec<u8>> =
        files.iter().map(|(name, text)| entry(&format!("package/{name}"), b'0', "", text.as_bytes())).collect();
    packed(&entries)
}

/// What ClawHub's address of a tarball ends with.
const CLAWHUB_DOWNLOAD: &str = "/versions/1.0.0/artifact/download";

/// Published packages by name.
type Shelf = Arc<Mutex<BTreeMap<String, Published>>>;

/// A registry of npm, which is a ClawHub as well.
pub(crate) struct Registry {
    pub(crate) url: String,
    port: u16,
    packages: Shelf,
    requests: Arc<Mutex<Vec<String>>>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Published {
    about: Value,
    tarball: Vec<u8>,
}

impl Registry {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (packages, requests) = (Shelf::default(), Arc::new(Mutex::new(Vec::new())));
        let stopped = Arc::new(AtomicBool::new(false));
        let (shelf, log, stop) = (packages.clone(), requests.clone(), stopped.clone());
        let thread = std::thread::spawn(move || {
            for connection in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let (shelf, log) = (shelf.clone(), log.clone());
                // npm opens connections that it does not use; they must not hold up the others.
                std::thread::spawn(move || serve(connection.unwrap(), &shelf, &log));
            }
        });
        Self { url: format!("http://127.0.0.1:{port}"), port, packages, requests, stopped, thread: Some(thread) }
    }

    /// Publishes version 1.0.0 of a package: what its `package.json` says, and its files.
    pub(crate) fn publish(&self, name: &str, package_json: &Value, files: &[(&str, &str)]) {
        self.publish_with_hash(name, package_json, files, None);
    }

    /// The same with another hash than that of the tarball.
    pub(crate) fn publish_with_hash(
        &self,
        name: &str,
        package_json: &Value,
        files: &[(&str, &str)],
        hash: Option<&str>,
    ) {
        let mut said: Map<String, Value> = package_json.as_object().unwrap().clone();
        said.insert("name".to_owned(), name.into());
        said.insert("version".to_owned(), "1.0.0".into());
        let text = Value::Object(said.clone()).to_string();
        let mut all = vec![("package.json", text.as_str())];
        all.extend(files);
        let tarball = npm_tarball(&all);
        let right = format!("sha512-{}", BASE64_STANDARD.encode(Sha512::digest(&tarball)));
        said.insert(
            "dist".to_owned(),
            json!({"tarball": format!("{}/{name}/-/{name}-1.0.0.tgz", self.url), "integrity": hash.unwrap_or(&right)}),
        );
        let about = json!({"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": said}});
        self.packages.lock().unwrap().insert(name.to_owned(), Published { about, tarball });
    }

    /// Paths that were asked for.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that waits for a connection.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn serve(mut connection: TcpStream, packages: &Mutex<BTreeMap<String, Published>>, log: &Mutex<Vec<String>>) {
    connection.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") && connection.read(&mut byte).is_ok_and(|n| n == 1) {
        request.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&request).into_owned();
    let Some(path) = text.split(' ').nth(1).and_then(|path| path.strip_prefix('/')) else { return };
    log.lock().unwrap().push(path.to_owned());
    let shelf = packages.lock().unwrap();
    // ClawHub's way to a tarball, and npm's.
    let clawhub = path.strip_prefix("api/v1/packages/").and_then(|rest| rest.strip_suffix(CLAWHUB_DOWNLOAD));
    let name = clawhub.map_or_else(
        || path.split("/-/").next().unwrap_or_default().to_owned(),
        |name| name.replace("%40", "@").replace("%2F", "/"),
    );
    let (status, kind, body) = match shelf.get(&name) {
        None => ("404 Not Found", "application/json", b"{\"error\":\"not found\"}".to_vec()),
        Some(found) if clawhub.is_some() || path.contains("/-/") => {
            ("200 OK", "application/octet-stream", found.tarball.clone())
        }
        Some(found) => ("200 OK", "application/json", found.about.to_string().into_bytes()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    // A client may disconnect before it has read the answer.
    if connection.write_all(head.as_bytes()).and_then(|()| connection.write_all(&body)).is_err() {
        log.lock().unwrap().push(format!("{path} was not taken"));
    }
}
