//! Sockets: the network, and other processes of the machine.

use crate::{Attempt, attempt, call, network, outside, works};
use std::{
    net::{TcpListener, TcpStream, UdpSocket},
    os::unix::net::{UnixDatagram, UnixStream},
};

fn port() -> u16 {
    std::env::var("PROBE_PORT").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn socket(domain: i32, kind: i32, protocol: i32) -> bool {
    works(libc::SYS_socket, &[domain as usize, kind as usize, protocol as usize])
}

/// A Unix address for `connect` and `sendto`.
fn unix_address(path: &std::path::Path) -> (libc::sockaddr_un, usize) {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: all zeroes is an address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
        *to = *from as libc::c_char;
    }
    (address, size_of::<libc::sockaddr_un>())
}

fn pair(kind: i32) -> Option<[i32; 2]> {
    let mut ends = [0i32; 2];
    let made = works(libc::SYS_socketpair, &[libc::AF_UNIX as usize, kind as usize, 0, ends.as_mut_ptr() as usize]);
    made.then_some(ends)
}

fn send_to_path(kind: i32) -> bool {
    let (address, length) = unix_address(&outside("datagram.sock"));
    pair(kind).is_some_and(|ends| {
        let to = &raw const address as usize;
        // SAFETY: the kernel reads the byte and the address.
        unsafe { libc::sendto(ends[0], c"x".as_ptr().cast(), 1, 0, to as *const _, length as u32) == 1 }
    })
}

fn connect_pair(kind: i32, name: &str) -> bool {
    let (address, length) = unix_address(&outside(name));
    pair(kind).is_some_and(|ends| works(libc::SYS_connect, &[ends[0] as usize, &raw const address as usize, length]))
}

pub(crate) fn attempts() -> Vec<Attempt> {
    vec![
        network("tcp-connect", || TcpStream::connect(("127.0.0.1", port())).is_ok()),
        network("tcp-listen", || TcpListener::bind("127.0.0.1:0").is_ok()),
        network("tcp-version-6", || TcpListener::bind("[::1]:0").is_ok()),
        network("udp-send", || {
            UdpSocket::bind("127.0.0.1:0").is_ok_and(|socket| socket.send_to(b"x", ("127.0.0.1", port())).is_ok())
        }),
        network("route-netlink", || socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)),
        attempt("raw-socket", || socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)),
        attempt("packet-socket", || socket(libc::AF_PACKET, libc::SOCK_RAW, 0)),
        attempt("ping-socket", || socket(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP)),
        attempt("device-netlink", || socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_KOBJECT_UEVENT)),
        attempt("audit-netlink", || socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT)),
        attempt("filter-netlink", || socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER)),
        attempt("crypto-socket", || socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0)),
        attempt("machine-socket", || socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)),
        attempt("unix-connect", || UnixStream::connect(outside("toolyard.sock")).is_ok()),
        attempt("unix-connect-readable", || UnixStream::connect(crate::readable("agent.sock")).is_ok()),
        attempt("unix-connect-writable", || UnixStream::connect(crate::writable("bus.sock")).is_ok()),
        attempt("unix-connect-abstract", || {
            use std::os::linux::net::SocketAddrExt;
            let name = std::env::var("PROBE_ABSTRACT").unwrap_or_default();
            std::os::unix::net::SocketAddr::from_abstract_name(name)
                .is_ok_and(|to| UnixStream::connect_addr(&to).is_ok())
        }),
        attempt("unix-connect-through-descriptor", || {
            let path = crate::c(&outside("toolyard.sock"));
            let cwd = libc::AT_FDCWD as usize;
            let fd = call(libc::SYS_openat, &[cwd, path.as_ptr() as usize, libc::O_PATH as usize]);
            fd >= 0 && UnixStream::connect(format!("/proc/self/fd/{fd}")).is_ok()
        }),
        attempt("bluetooth-socket", || socket(libc::AF_BLUETOOTH, libc::SOCK_RAW, 1)),
        attempt("key-socket", || socket(libc::AF_KEY, libc::SOCK_RAW, 2)),
        attempt("express-data-socket", || socket(libc::AF_XDP, libc::SOCK_RAW, 0)),
        attempt("diagnostics-netlink", || socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_SOCK_DIAG)),
        attempt("generic-netlink", || socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC)),
        attempt("unix-listen", || std::os::unix::net::UnixListener::bind(crate::writable("own.sock")).is_ok()),
        attempt("unix-datagram", || {
            UnixDatagram::unbound().is_ok_and(|socket| socket.send_to(b"x", outside("datagram.sock")).is_ok())
        }),
        attempt("pair-datagram-send", || send_to_path(libc::SOCK_DGRAM)),
        attempt("pair-datagram-connect", || connect_pair(libc::SOCK_DGRAM, "datagram.sock")),
        attempt("pair-raw-send", || send_to_path(libc::SOCK_RAW)),
        attempt("pair-stream-connect", || connect_pair(libc::SOCK_STREAM, "toolyard.sock")),
        attempt("pair-packet-connect", || connect_pair(libc::SOCK_SEQPACKET, "toolyard.sock")),
        attempt("socket-of-high-half", || {
            // The kernel looks at the low half of the domain alone; so must the filter.
            call(libc::SYS_socket, &[libc::AF_UNIX as usize | 1 << 32, libc::SOCK_STREAM as usize, 0]) >= 0
        }),
    ]
}
