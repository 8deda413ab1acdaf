//! `HOST:PATH`: the peer of a transfer, reached by ssh, which encrypts and authenticates.
//!
//! `send` starts `ssh HOST evermap receive --stdio PATH` and communicates through a socket
//! connected to that command's standard input and output. A directory is sent as one tar stream
//! (`tree`), so its speed does not depend on the network's latency.

mod stdio;
pub mod tree;

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};

use evermap_transfer::Error;

use crate::failure::Failure;

pub use stdio::socket;

/// A path on another host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// Host for ssh: a name of its configuration, `HOST`, or `USER@HOST`.
    host: OsString,
    /// Path on that host, relative to the home directory there.
    path: OsString,
}

/// Commands that reach the other host.
#[derive(Debug, Clone, Copy)]
pub struct Way<'a> {
    /// ssh command and options, separated by spaces.
    pub ssh: &'a str,
    /// Name of the `evermap` command there.
    pub evermap: &'a str,
}

/// A running command on the other host.
pub struct Running {
    child: Child,
    host: String,
    evermap: String,
}

impl Remote {
    /// Parses `[USER@]HOST:PATH`. Returns `None` for addresses: `HOST:PORT`, `[IPV6]:PORT` and
    /// `unix:PATH`. A file whose name is a number is written `HOST:./NUMBER`.
    pub fn parse(text: &OsStr) -> Option<Remote> {
        let bytes = text.as_bytes();
        if bytes.starts_with(b"unix:") {
            return None;
        }
        let bracket = bytes.iter().position(|byte| *byte == b']').unwrap_or(0);
        let colon = bracket + bytes[bracket..].iter().position(|byte| *byte == b':')?;
        let (host, path) = (&bytes[..colon], &bytes[colon + 1..]);
        let is_port = !path.is_empty() && path.iter().all(u8::is_ascii_digit);
        if host.is_empty() || host.contains(&b'/') || is_port {
            return None;
        }
        let host: Vec<u8> = host.iter().copied().filter(|byte| !b"[]".contains(byte)).collect();
        let path = if path.is_empty() { b"." } else { path };
        Some(Remote { host: OsString::from_vec(host), path: OsStr::from_bytes(path).into() })
    }

    /// Starts `evermap receive` there with these options and the path. Returns a socket to its
    /// standard input and output.
    pub fn start(&self, way: Way<'_>, options: &[&OsStr]) -> Result<(Running, OwnedFd), Failure> {
        let mut words = way.ssh.split_ascii_whitespace();
        let Some(ssh) = words.next() else {
            return Err(Failure::Usage("--ssh needs a command, such as `ssh`".into()));
        };
        if self.host.as_bytes().starts_with(b"-") {
            let host = self.host.display();
            return Err(Failure::Usage(format!(
                "invalid host `{host}`: ssh would take it for an option"
            )));
        }
        let not_started = |source| Failure::NotStarted { program: ssh.into(), source };
        let (here, there) = UnixStream::pair().map_err(not_started)?;
        let output = there.try_clone().map_err(not_started)?;
        let mut command = Command::new(ssh);
        command.args(words).arg("-T").arg("--").arg(&self.host);
        command.arg(self.command(way.evermap, options));
        command.stdin(Stdio::from(OwnedFd::from(there)));
        command.stdout(Stdio::from(OwnedFd::from(output)));
        let child = command.spawn().map_err(not_started)?;
        let (host, evermap) = (self.host.display().to_string(), way.evermap.to_string());
        Ok((Running { child, host, evermap }, here.into()))
    }

    /// Builds the command line for the remote shell, quoted so that the path arrives unchanged.
    fn command(&self, evermap: &str, options: &[&OsStr]) -> OsString {
        let mut line = quoted(OsStr::new(evermap));
        let words = [OsStr::new("receive"), OsStr::new("--stdio"), &self.path];
        for word in words.iter().chain(options) {
            line.push(b' ');
            line.extend(quoted(word));
        }
        OsString::from_vec(line)
    }
}

impl std::fmt::Display for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host.display(), self.path.display())
    }
}

/// Quotes a word in single quotes, in which a shell interprets only the closing quote.
fn quoted(word: &OsStr) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => quoted.extend(b"'\\''"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

impl Running {
    /// Waits for the command and combines its exit status with this end's result. The command has
    /// already printed its messages on stderr.
    pub fn end<T>(mut self, seen: Result<T, Failure>) -> Result<T, Failure> {
        let ended = self.child.wait().map_err(Failure::Output)?;
        match (ended.success(), seen) {
            (true, seen) => seen,
            (false, Ok(_)) => Err(self.failure(ended, "the command there failed")),
            // An error at this end, such as a changed source, takes precedence. For a broken
            // connection the other end knows the cause.
            (false, Err(Failure::Transfer(Error::Peer { .. }))) => {
                Err(self.failure(ended, "the connection ended before the transfer"))
            }
            (false, Err(failure)) => Err(failure),
        }
    }

    fn failure(&self, ended: ExitStatus, otherwise: &str) -> Failure {
        let what = match ended.code() {
            Some(255) => {
                "ssh could not connect for the reason above; try `ssh` with this host alone".into()
            }
            Some(126 | 127) => format!(
                "`{}` was not found there: install it or give its path with --remote-command",
                self.evermap
            ),
            Some(code) => format!("{otherwise} (exit code {code}) for the reason above"),
            None => format!("{otherwise} ({ended})"),
        };
        Failure::Transfer(Error::Peer { address: self.host.clone(), what })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(text: &str) -> Option<(String, String)> {
        let remote = Remote::parse(OsStr::new(text))?;
        Some((remote.host.into_string().unwrap(), remote.path.into_string().unwrap()))
    }

    #[test]
    fn hosts_with_paths_are_distinguished_from_addresses() {
        let some = |host: &str, path: &str| Some((host.to_string(), path.to_string()));
        assert_eq!(parse("host:/backup"), some("host", "/backup"));
        assert_eq!(parse("me@host:a b"), some("me@host", "a b"));
        assert_eq!(parse("host:"), some("host", "."));
        assert_eq!(parse("host:./22"), some("host", "./22"));
        assert_eq!(parse("me@[::1]:x:y"), some("me@::1", "x:y"));
        for address in
            ["host:22", "[::1]:22", "unix:/run/x", "unix:x", "file", "./a:b", "/a:b", ":x"]
        {
            assert_eq!(parse(address), None, "{address}");
        }
    }

    #[test]
    fn paths_are_not_interpreted_by_the_remote_shell() {
        let line = |path: &str| {
            let remote = Remote { host: "h".into(), path: path.into() };
            remote.command("evermap", &[OsStr::new("--verify")]).into_string().unwrap()
        };
        assert_eq!(line("a b"), "'evermap' 'receive' '--stdio' 'a b' '--verify'");
        for path in ["$(touch x)", "`touch x`", "a;b", "a'b", "a\"b", "*", "~", "a\nb", "\\", "-x"]
        {
            let mut shell = Command::new("sh");
            let shell = shell.arg("-c").arg(line(path).replacen("'evermap'", "printf '%s|'", 1));
            let printed = String::from_utf8(shell.output().unwrap().stdout).unwrap();
            assert_eq!(printed, format!("receive|--stdio|{path}|--verify|"));
        }
    }
}
