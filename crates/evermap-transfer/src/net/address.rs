//! Addresses of peers: `HOST:PORT` or `unix:PATH`.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::{Error, Result};

/// Prefix of a UNIX socket's path.
const UNIX: &[u8] = b"unix:";

/// `sun_path` has 108 bytes, including the terminating zero.
const UNIX_PATH_BYTES_MAX: usize = 107;

/// Address of a stream socket.
///
/// ```
/// use evermap_transfer::net::Address;
///
/// let address: Address = "[::1]:7000".parse()?;
/// assert_eq!(address, Address::Tcp { host: "::1".into(), port: 7000 });
/// assert_eq!(address.to_string(), "[::1]:7000");
///
/// let address = Address::parse("unix:/run/inbox")?;
/// assert_eq!(address, Address::Unix("/run/inbox".into()));
///
/// let error = Address::parse("localhost").unwrap_err();
/// assert!(error.to_string().contains("HOST:PORT"));
/// # Ok::<(), evermap_transfer::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP, neither encrypted nor authenticated.
    Tcp {
        /// Host name or IP address, without brackets.
        host: String,
        /// Port number. 0 lets a listener choose a free one.
        port: u16,
    },
    /// UNIX socket. Access is controlled by the modes of the socket and its directory.
    Unix(PathBuf),
}

impl Address {
    /// Parses an address. The path of a UNIX socket may contain any bytes except zero, 107 at most.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] with the cause.
    pub fn parse(text: impl AsRef<OsStr>) -> Result<Address> {
        let bytes = text.as_ref().as_bytes();
        if let Some(path) = bytes.strip_prefix(UNIX) {
            return unix(path);
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => tcp(text),
            Err(_) => Err(wrong(
                text.as_ref(),
                "host names must be UTF-8; use `unix:PATH` for a UNIX socket",
            )),
        }
    }
}

fn wrong(text: &OsStr, why: impl fmt::Display) -> Error {
    Error::Usage(format!("invalid address `{}`: {why}", text.display()))
}

fn unix(path: &[u8]) -> Result<Address> {
    let refuse = |why: String| {
        Err(Error::Usage(format!(
            "invalid address `unix:{}`: {why}",
            OsStr::from_bytes(path).display()
        )))
    };
    match path {
        b"" => refuse("no path after `unix:`".into()),
        path if path.contains(&0) => refuse("the path contains a zero byte".into()),
        path if path.len() > UNIX_PATH_BYTES_MAX => refuse(format!(
            "the path has {} bytes, but at most {UNIX_PATH_BYTES_MAX} are possible; change to its directory and use a \
             relative path",
            path.len()
        )),
        path => Ok(Address::Unix(Path::new(OsStr::from_bytes(path)).into())),
    }
}

fn tcp(text: &str) -> Result<Address> {
    let refuse = |why: &str| Err(wrong(OsStr::new(text), why));
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let Some((host, port)) = rest.split_once(']') else {
            return refuse("missing closing bracket, as in [::1]:7000");
        };
        if host.parse::<std::net::Ipv6Addr>().is_err() && !host.contains('%') {
            return refuse("the brackets contain no IPv6 address");
        }
        match port.strip_prefix(':') {
            Some(port) => (host, port),
            None => return refuse("missing port after the bracket, as in [::1]:7000"),
        }
    } else {
        match text.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => {
                return refuse("put an IPv6 address in brackets, as in [::1]:7000");
            }
            Some(parts) => parts,
            None => return refuse("expected HOST:PORT, as in 127.0.0.1:7000, or unix:PATH"),
        }
    };
    if host.is_empty() {
        return refuse(
            "missing host: use 127.0.0.1 for this machine only, 0.0.0.0 for all of its networks",
        );
    }
    if host
        .chars()
        .any(|character| character.is_whitespace() || character.is_control() || character == '/')
    {
        return refuse("host names contain no spaces and no `/`");
    }
    match port.parse() {
        Ok(port) if port_is_digits(text) => Ok(Address::Tcp { host: host.into(), port }),
        _ => refuse("the port must be a number from 0 to 65535"),
    }
}

/// Rejects a plus sign, which `u16::from_str` accepts.
fn port_is_digits(text: &str) -> bool {
    text.bytes().last().is_some_and(|byte| byte.is_ascii_digit()) && !text.contains(":+")
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Address> {
        Address::parse(text)
    }
}

impl From<std::net::SocketAddr> for Address {
    fn from(address: std::net::SocketAddr) -> Address {
        Address::Tcp { host: address.ip().to_string(), port: address.port() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_addresses_are_refused_with_a_reason() {
        for (text, why) in [
            ("", "HOST:PORT"),
            ("localhost", "HOST:PORT"),
            (":7000", "missing host"),
            ("localhost:", "0 to 65535"),
            ("localhost:http", "0 to 65535"),
            ("localhost:65536", "0 to 65535"),
            ("localhost:+80", "0 to 65535"),
            ("localhost:-1", "0 to 65535"),
            ("::1:7000", "brackets"),
            ("[::1]", "missing port"),
            ("[::1]7000", "missing port"),
            ("[::1:7000", "closing bracket"),
            ("[localhost]:7000", "no IPv6 address"),
            ("a b:7000", "no spaces"),
            ("unix:", "no path"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text:?}: {error}");
        }
        let long = format!("unix:{}", "x".repeat(108));
        assert!(Address::parse(&long).unwrap_err().to_string().contains("108 bytes"));
    }

    #[test]
    fn unix_path_may_contain_any_bytes() {
        let text = OsStr::from_bytes(b"unix:a\xff\nb");
        assert_eq!(
            Address::parse(text).unwrap(),
            Address::Unix(OsStr::from_bytes(b"a\xff\nb").into())
        );
    }

    proptest! {
        #[test]
        fn displayed_address_parses_to_itself(host in "[a-z0-9.-]{1,20}", port: u16, six: std::net::Ipv6Addr) {
            for host in [host, six.to_string()] {
                let address = Address::Tcp { host, port };
                prop_assert_eq!(Address::parse(address.to_string()).unwrap(), address);
            }
        }

        #[test]
        fn parsing_never_panics(text in "\\PC{0,40}") {
            let _ = Address::parse(text);
        }
    }
}
