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

/// How long a full queue of a UNIX listener is left alone.
const PAUSE: Duration = Duration::from_millis(5);

/// Connects, within `time`, to the first of the host's addresses that answers.
pub(super) fn connect(address: &Address, time: Duration, cancelled: &AtomicBool) -> Result<Socket> {
    let deadline = Instant::now() + time;
    let descriptor = match address {
        Address::Unix(path) => connect_unix(address, path, deadline, cancelled)?,
        Address::Tcp { host, port } => connect_tcp(address, host, *port, deadline)?,
    };
    Socket::new(descriptor, &address.to_string())
}

fn cannot_connect(address: &Address, error: &io::Error) -> Error {
    let remedy = match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            "is a receiver listening there? start it first"
        }
        io::ErrorKind::TimedOut => "is the host up, and no firewall between?",
        io::ErrorKind::PermissionDenied => "see who may use it",
        _ => "see whether the address is right",
    };
    Error::Peer { address: address.to_string(), what: format!("cannot connect: {error}; {remedy}") }
}

fn connect_tcp(address: &Address, host: &str, port: u16, deadline: Instant) -> Result<OwnedFd> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for candidate in resolve(address, host, port)? {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&candidate, left) {
            Ok(stream) => {
                unpace_within_machine(&stream);
                return Ok(stream.into());
            }
            Err(error) => last = error,
        }
    }
    Err(cannot_connect(address, &last))
}

/// Leaves out what is there for networks, where there is none: congestion control that paces, as BBR does, sets a timer for
/// each segment. Between two ends of one machine a gigabyte took 750 ms so, and 100 ms without. Reno does not pace, and any user
/// may have it.
fn unpace_within_machine(stream: &TcpStream) {
    if let (Ok(here), Ok(there)) = (stream.local_addr(), stream.peer_addr())
        && here.ip() == there.ip()
    {
        // Only an administrator's orders can refuse it; it works as well then, and slower.
        let _ = rustix::net::sockopt::set_tcp_congestion(stream, "reno");
    }
}

/// A number is taken as it is: looking up names costs a few system calls and may ask a server.
fn resolve(address: &Address, host: &str, port: u16) -> Result<Vec<SocketAddr>> {
    if let Ok(number) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(number, port)]);
    }
    match (host, port).to_socket_addrs() {
        Ok(found) => Ok(found.collect()),
        Err(error) => Err(Error::Peer {
            address: address.to_string(),
            what: format!(
                "no host of this name is known ({error}); see whether it is spelt right, or use its number"
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
    let failed = |errno: Errno| cannot_connect(address, &errno.into());
    let name = SocketAddrUnix::new(path).map_err(failed)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(failed)?;
    loop {
        match rustix::net::connect(&socket, &name) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => {}
            // The listener's queue is full, and nothing tells when it no longer is.
            Err(Errno::AGAIN)
                if Instant::now() < deadline && !cancelled.load(Ordering::Relaxed) =>
            {
                std::thread::sleep(PAUSE);
            }
            Err(Errno::AGAIN) => return Err(failed(Errno::TIMEDOUT)),
            Err(errno) => return Err(failed(errno)),
        }
    }
}

/// A listening socket, which never blocks. That of a UNIX address takes its name along when it is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    address: Address,
    socket: Bound,
}

#[derive(Debug)]
enum Bound {
    Tcp(TcpListener),
    Unix { listener: UnixListener, name: PathBuf, inode: (u64, u64) },
}

impl Listener {
    pub(super) fn new(address: &Address) -> Result<Listener> {
        let cannot = |error: io::Error| {
            let remedy = match error.kind() {
                io::ErrorKind::AddrInUse => "somebody listens there already; name another address",
                io::ErrorKind::AddrNotAvailable => {
                    "this machine has no such address; 127.0.0.1 it always has"
                }
                io::ErrorKind::PermissionDenied => {
                    "ports below 1024 are the administrator's, and the directory of a \
                                                    UNIX socket must be writable"
                }
                _ => "name another address",
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
                Ok(Listener { address, socket: Bound::Tcp(listener) })
            }
            Address::Unix(path) => {
                let listener = bind_unix(path).map_err(cannot)?;
                listener.set_nonblocking(true).map_err(cannot)?;
                let status = fs::symlink_metadata(path).map_err(cannot)?;
                let inode = (status.dev(), status.ino());
                Ok(Listener {
                    address: address.clone(),
                    socket: Bound::Unix { listener, name: path.clone(), inode },
                })
            }
        }
    }

    /// Where it listens, with the port that it got.
    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// The next connection; `None` when there is none at the moment, or it was gone before it was taken.
    pub(super) fn accept(&self) -> Result<Option<Socket>> {
        let accepted = match &self.socket {
            Bound::Tcp(listener) => listener.accept().map(|(stream, _)| OwnedFd::from(stream)),
            Bound::Unix { listener, .. } => {
                listener.accept().map(|(stream, _)| OwnedFd::from(stream))
            }
        };
        match accepted {
            Ok(descriptor) => Ok(Socket::new(descriptor, &self.address.to_string()).ok()),
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::INVAL | Errno::BADF | Errno::OPNOTSUPP | Errno::NOTSOCK) => {
                    Err(Error::io("accept connections at", self.address.to_string())(error))
                }
                // Of the network, of one connection, or of the descriptors there are: the next try may do.
                _ => Ok(None),
            },
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Bound::Tcp(listener) => listener.as_fd(),
            Bound::Unix { listener, .. } => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Bound::Unix { name, inode, .. } = &self.socket {
            // Only its own: another may have taken the name since.
            if fs::symlink_metadata(name).is_ok_and(|status| (status.dev(), status.ino()) == *inode)
            {
                let _ = fs::remove_file(name);
            }
        }
    }
}

/// Binds to a name. One that a listener left behind when it was killed is taken over: a socket that nobody listens at.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let is_socket =
                fs::symlink_metadata(path).is_ok_and(|status| status.file_type().is_socket());
            let is_deserted = || matches!(UnixStream::connect(path), Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused);
            match is_socket && is_deserted() {
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
    fn a_connection_within_this_machine_is_not_paced() {
        let allowed = fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
        if !allowed.unwrap_or_default().split_whitespace().any(|name| name == "reno") {
            return eprintln!("SKIPPED: Reno is not allowed here");
        }
        let listener = Listener::new(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let never = AtomicBool::new(false);
        let socket = connect(listener.address(), Duration::from_secs(10), &never).unwrap();
        assert_eq!(rustix::net::sockopt::tcp_congestion(&socket).unwrap(), "reno");
    }
}
