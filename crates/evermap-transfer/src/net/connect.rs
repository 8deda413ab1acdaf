//! Connecting to an address, and listening at one.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::address::Address;
use super::socket::Socket;
use crate::error::{Error, Result};

/// Interval between attempts to connect to a UNIX listener with a full queue.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Connects within `time` to the first of the host's addresses that answers. The time to resolve
/// its name is not limited. `cancelled` is checked only for UNIX sockets.
pub(super) fn connect(address: &Address, time: Duration, cancelled: &AtomicBool) -> Result<Socket> {
    let deadline = Instant::now() + time;
    let descriptor = match address {
        Address::Unix(path) => connect_unix(address, path, deadline, cancelled)?,
        Address::Tcp { host, port } => connect_tcp(address, host, *port, deadline)?,
    };
    Socket::new(descriptor, &address.to_string())
}

fn connect_error(address: &Address, error: &io::Error) -> Error {
    let remedy = match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            "check that a receiver is listening there"
        }
        io::ErrorKind::TimedOut => "check that the host is up and no firewall blocks the port",
        io::ErrorKind::PermissionDenied => "check the permissions of the socket",
        _ => "check the address",
    };
    Error::Peer { address: address.to_string(), what: format!("cannot connect: {error}; {remedy}") }
}

fn connect_tcp(address: &Address, host: &str, port: u16, deadline: Instant) -> Result<OwnedFd> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for candidate in resolve(address, host, port)? {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&candidate, left) {
            Ok(stream) => {
                disable_pacing(&stream);
                return Ok(stream.into());
            }
            Err(error) => last = error,
        }
    }
    Err(connect_error(address, &last))
}

/// Disables pacing on connections within this machine. Congestion control that paces, such as BBR,
/// sets a timer for each segment: 1 GiB took 750 ms with it and 100 ms without. Reno does not pace
/// and is available to all users.
fn disable_pacing(stream: &TcpStream) {
    if let (Ok(here), Ok(there)) = (stream.local_addr(), stream.peer_addr())
        && here.ip() == there.ip()
    {
        // An administrator can forbid it. The connection then works, but slower.
        let _ = rustix::net::sockopt::set_tcp_congestion(stream, "reno");
    }
}

/// Resolves a host name. IP addresses are used directly, which saves system calls and possibly a
/// query to a server.
fn resolve(address: &Address, host: &str, port: u16) -> Result<Vec<SocketAddr>> {
    if let Ok(number) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(number, port)]);
    }
    match (host, port).to_socket_addrs() {
        Ok(found) => Ok(found.collect()),
        Err(error) => Err(Error::Peer {
            address: address.to_string(),
            what: format!(
                "cannot resolve the host name ({error}); check its spelling or use an IP address"
            ),
        }),
    }
}

fn connect_unix(
    address: &Address,
    path: &Path,
    deadline: Instant,
    cancelled: &AtomicBool,
) -> Result<OwnedFd> {
    let failed = |errno: Errno| connect_error(address, &errno.into());
    let name = SocketAddrUnix::new(path).map_err(failed)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(failed)?;
    loop {
        match rustix::net::connect(&socket, &name) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => {}
            // The listener's queue is full. There is no notification when it has space.
            Err(Errno::AGAIN) if cancelled.load(Ordering::Relaxed) => {
                return Err(Error::Cancelled { left: "no partial file remains".into() });
            }
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(RETRY_INTERVAL),
            Err(Errno::AGAIN) => return Err(failed(Errno::TIMEDOUT)),
            Err(errno) => return Err(failed(errno)),
        }
    }
}

/// Outcome of accepting a connection.
#[derive(Debug)]
pub(super) enum Accepted {
    Connection(Socket),
    /// There is none, it was closed before, or the error was transient.
    Nothing,
    /// One waits, but the process or the system lacks descriptors or memory for it.
    Short(Errno),
}

/// A non-blocking listening socket. A UNIX socket's name is removed on drop.
#[derive(Debug)]
pub(super) struct ListenSocket {
    address: Address,
    socket: Bound,
}

#[derive(Debug)]
enum Bound {
    Tcp(TcpListener),
    Unix { listener: UnixListener, name: PathBuf, inode: (u64, u64) },
}

impl ListenSocket {
    pub(super) fn new(address: &Address) -> Result<ListenSocket> {
        let cannot = |error: io::Error| {
            let remedy = match error.kind() {
                io::ErrorKind::AddrInUse => "another process listens there; use another address",
                io::ErrorKind::AddrNotAvailable => {
                    "this machine does not have that address; 127.0.0.1 always exists"
                }
                io::ErrorKind::PermissionDenied => {
                    "ports below 1024 need privileges, and the directory of a UNIX socket must be \
                     writable"
                }
                _ => "use another address",
            };
            Error::Peer {
                address: address.to_string(),
                what: format!("cannot listen: {error}; {remedy}"),
            }
        };
        match address {
            Address::Tcp { host, port } => {
                let listener =
                    TcpListener::bind(&resolve(address, host, *port)?[..]).map_err(cannot)?;
                listener.set_nonblocking(true).map_err(cannot)?;
                let address = listener.local_addr().map_err(cannot)?.into();
                Ok(ListenSocket { address, socket: Bound::Tcp(listener) })
            }
            Address::Unix(path) => {
                let listener = bind_unix(path).map_err(cannot)?;
                listener.set_nonblocking(true).map_err(cannot)?;
                let status = fs::symlink_metadata(path).map_err(cannot)?;
                let inode = (status.dev(), status.ino());
                Ok(ListenSocket {
                    address: address.clone(),
                    socket: Bound::Unix { listener, name: path.clone(), inode },
                })
            }
        }
    }

    /// Returns the address, with the actual port.
    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Accepts the next connection.
    pub(super) fn accept(&self) -> Result<Accepted> {
        let accepted = match &self.socket {
            Bound::Tcp(listener) => listener.accept().map(|(stream, _)| OwnedFd::from(stream)),
            Bound::Unix { listener, .. } => {
                listener.accept().map(|(stream, _)| OwnedFd::from(stream))
            }
        };
        match accepted {
            Ok(descriptor) => Ok(Socket::new(descriptor, &self.address.to_string())
                .map_or(Accepted::Nothing, Accepted::Connection)),
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::INVAL | Errno::BADF | Errno::OPNOTSUPP | Errno::NOTSOCK) => {
                    Err(Error::io("accept connections at", self.address.to_string())(error))
                }
                Some(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    Ok(Accepted::Short(errno))
                }
                // Transient errors of the network or a connection: the next attempt may succeed.
                _ => Ok(Accepted::Nothing),
            },
        }
    }
}

impl AsFd for ListenSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Bound::Tcp(listener) => listener.as_fd(),
            Bound::Unix { listener, .. } => listener.as_fd(),
        }
    }
}

impl Drop for ListenSocket {
    fn drop(&mut self) {
        if let Bound::Unix { name, inode, .. } = &self.socket {
            // Remove only its own socket: another process may have taken the name since.
            if fs::symlink_metadata(name).is_ok_and(|status| (status.dev(), status.ino()) == *inode)
            {
                let _ = fs::remove_file(name);
            }
        }
    }
}

/// Binds to a path. Replaces the socket of a killed listener, which refuses connections.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let is_socket =
                fs::symlink_metadata(path).is_ok_and(|status| status.file_type().is_socket());
            let is_stale = || matches!(UnixStream::connect(path), Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused);
            match is_socket && is_stale() {
                true => fs::remove_file(path).and_then(|()| UnixListener::bind(path)),
                false => Err(error),
            }
        }
        bound => bound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_within_this_machine_is_not_paced() {
        let allowed = fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
        if !allowed.unwrap_or_default().split_whitespace().any(|name| name == "reno") {
            return eprintln!("SKIPPED: congestion control `reno` is not allowed here");
        }
        let listener = ListenSocket::new(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let never = AtomicBool::new(false);
        let socket = connect(listener.address(), Duration::from_secs(10), &never).unwrap();
        assert_eq!(rustix::net::sockopt::tcp_congestion(&socket).unwrap(), "reno");
    }

    #[test]
    fn cancelling_a_connection_to_a_full_listener_is_no_timeout() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let address = Address::Unix(path);
        let cancelled = AtomicBool::new(true);
        // The queue has room for the first.
        let connected = [0; 3].map(|_| connect(&address, Duration::from_secs(10), &cancelled));
        let [_, _, Err(error)] = connected else { panic!("{connected:?}") };
        assert!(matches!(error, Error::Cancelled { .. }), "{error:?}");
    }
}
