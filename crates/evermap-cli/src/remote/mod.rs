//! `HOST:PATH`: the other end of a transfer, reached by ssh, which encrypts and says who is there.
//!
//! `send` starts `ssh HOST evermap receive --stdio PATH` and speaks with that through one socket, which is the command's
//! standard input and output. A directory goes as a tar stream (`tree`): one stream for all files, whatever the distance.

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

/// A place on another host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// As ssh takes it: a name of its configuration, `HOST`, or `USER@HOST`.
    host: OsString,
    /// On that host; relative to the home directory there.
    path: OsString,
}

/// How the other end is reached.
#[derive(Debug, Clone, Copy)]
pub struct Way<'a> {
    /// Command and options, separated by spaces.
    pub ssh: &'a str,
    /// The `evermap` command there.
    pub evermap: &'a str,
}

/// A command that runs on the other host.
pub struct Running {
    child: Child,
    host: String,
    evermap: String,
}

impl Remote {
    /// Parses `[USER@]HOST:PATH`. `None` for what is an address: `HOST:PORT`, `[IPV6]:PORT` and `unix:PATH`; a file that
    /// is called by a number is `HOST:./NUMBER`.
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

    /// Starts `evermap receive` there, with these options and the path; its standard input and output are the socket.
    pub fn start(&self, way: Way<'_>, options: &[&OsStr]) -> Result<(Running, OwnedFd), Failure> {
        let mut words = way.ssh.split_ascii_whitespace();
        let Some(ssh) = words.next() else {
            return Err(Failure::Usage("name the command of --ssh, `ssh` say".into()));
        };
        if self.host.as_bytes().starts_with(b"-") {
            let host = self.host.display();
            return Err(Failure::Usage(format!(
                "`{host}` is no host: ssh would take it for an option"
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

    /// One line for the shell there. Words are quoted, so that the path reaches the command as it is.
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

/// In single quotes, where nothing but a single quote has a meaning for a shell.
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
    /// Waits for the end, and makes one result of what this end saw and how the other one ended. What the other command
    /// had to say stands on stderr already.
    pub fn end<T>(mut self, seen: Result<T, Failure>) -> Result<T, Failure> {
        let ended = self.child.wait().map_err(Failure::Output)?;
        match (ended.success(), seen) {
            (true, seen) => seen,
            (false, Ok(_)) => Err(self.failure(ended, "it ended with an error")),
            // This end's own reasons, as a source that changed, come first; of a broken connection the other knows more.
            (false, Err(Failure::Transfer(Error::Peer { .. }))) => {
                Err(self.failure(ended, "the connection ended before the transfer"))
            }
            (false, Err(failure)) => Err(failure),
        }
    }

    fn failure(&self, ended: ExitStatus, otherwise: &str) -> Failure {
        let what = match ended.code() {
            Some(255) => {
                "ssh could not connect: its reason stands above; try `ssh` with this host by itself"
                    .into()
            }
            Some(126 | 127) => format!(
                "there is no `{}` for this user: install it there, or name its path with --remote-command",
                self.evermap
            ),
            Some(code) => format!("{otherwise} (exit code {code}): its reason stands above"),
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
    fn hosts_with_paths_are_told_from_addresses() {
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
    fn no_path_means_anything_to_the_shell_there() {
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
