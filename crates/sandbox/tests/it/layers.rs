//! Each layer by itself: what native code could do after it was put up. These tests run themselves again as a child,
//! because a layer cannot be taken down.

use std::process::Command;
use toolyard_sandbox::{Limits, child};

const VARIABLE: &str = "TOOLYARD_TEST_LAYER";

/// Runs this test again in a process of its own with `layer` named in its environment; its exit status and output.
fn again(test: &str, layer: &str) -> (std::process::ExitStatus, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads", "1"])
        .env(VARIABLE, layer)
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    (output.status, String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

#[toolyard_shows::shows("001-6-04", "001-6-05")]
#[test]
fn landlock_alone_keeps_files_and_ports_away() {
    if std::env::var_os(VARIABLE).is_some() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        child::restrict_files().unwrap();
        assert!(std::fs::read("/etc/passwd").is_err(), "reading");
        assert!(std::fs::read_dir("/").is_err(), "listing");
        assert!(std::fs::write("/tmp/toolyard-escape", "x").is_err(), "writing");
        assert!(std::fs::create_dir("/tmp/toolyard-escape").is_err(), "making folders");
        assert!(Command::new("/bin/true").status().is_err(), "running programs");
        assert!(std::net::TcpStream::connect(address).is_err(), "connecting");
        assert!(std::net::TcpListener::bind("127.0.0.1:0").is_err(), "listening");
        return;
    }
    let (status, output) = again("layers::landlock_alone_keeps_files_and_ports_away", "files");
    assert!(status.success(), "{output}");
}

#[toolyard_shows::shows("001-6-02", "001-6-06")]
#[test]
fn seccomp_alone_kills_at_the_first_forbidden_call() {
    use std::os::unix::process::ExitStatusExt;
    if let Some(what) = std::env::var_os(VARIABLE) {
        let what = what.into_string().unwrap();
        child::restrict_calls().unwrap();
        match what.as_str() {
            "open" => drop(std::fs::read("/etc/passwd")),
            "socket" => drop(std::net::UdpSocket::bind("127.0.0.1:0")),
            "spawn" => drop(Command::new("/bin/true").status()),
            "thread" => drop(std::thread::Builder::new().spawn(|| ())),
            "signal" => {
                let parent = rustix::process::getppid().unwrap();
                let _ = rustix::process::kill_process(parent, rustix::process::Signal::CONT);
            }
            "limits" => drop(child::restrict_resources(&Limits::default())),
            "nothing" => {
                // What the interpreter needs still works.
                let large = vec![1u8; 8 << 20];
                let text = format!("{}", large.len());
                std::process::exit(if text == "8388608" { 42 } else { 1 });
            }
            _ => {}
        }
        // A forbidden call that returned is an escape.
        std::process::exit(7);
    }
    let test = "layers::seccomp_alone_kills_at_the_first_forbidden_call";
    for what in ["open", "socket", "spawn", "thread", "signal", "limits"] {
        let (status, output) = again(test, what);
        assert_eq!(status.signal(), Some(31), "{what}: {status:?} {output}");
    }
    assert_eq!(again(test, "nothing").0.code(), Some(42));
}

#[test]
fn resource_limits_alone_bound_memory_and_descriptors() {
    if std::env::var_os(VARIABLE).is_some() {
        child::restrict_resources(&Limits::default()).unwrap();
        assert!(std::fs::File::open("/dev/null").is_err(), "no more descriptors");
        let mut much: Vec<u8> = Vec::new();
        assert!(much.try_reserve_exact(1 << 30).is_err(), "no more memory");
        return;
    }
    let (status, output) = again("layers::resource_limits_alone_bound_memory_and_descriptors", "resources");
    assert!(status.success(), "{output}");
}
