//! Sends files through sockets on this machine, with sender and receiver as separate processes, and
//! measures the cost of both.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use harness::Outcome;
use harness::ends::check_interrupted;
use harness::process::{self, Cost, Failure, Job, last_lines};
use serde::{Deserialize, Serialize};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Measurements of one file, sent and received.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sent {
    pub bytes: u64,
    /// From before the start of the sender to the end of the receiver.
    pub wall_ns: u64,
    /// Time from the connection to its end, if the receiver reports it.
    pub connected_ns: Option<u64>,
    pub sender: Cost,
    pub receiver: Cost,
}

/// Final report of `discard`.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Taken {
    pub bytes: u64,
    pub connected_ns: u64,
}

/// Condition that wakes a waiting receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waking {
    /// Each segment, the default of sockets.
    Always,
    /// A larger amount of data, as for `evermap receive`.
    Seldom,
}

/// Amount of data for [`Waking::Seldom`].
const WAKING_BYTES: &str = "131072";

impl Waking {
    /// Options for `discard`.
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Waking::Always => &[],
            Waking::Seldom => &["--waking", WAKING_BYTES],
        }
    }
}

/// Receiving program.
pub enum Receiver<'a> {
    /// This benchmark's `discard`: discards the data, or writes it to a file.
    Discard { program: &'a Path, into: Option<&'a Path>, waking: Waking },
    /// `evermap receive`; `raw` accepts any bytes from one connection.
    Evermap { program: &'a Path, raw: bool, into: &'a Path },
}

/// Receiver that waits for connections. It is killed on drop.
pub struct Waiting {
    child: Option<Child>,
    output: BufReader<ChildStdout>,
    stderr: File,
    start: Instant,
    pub address: String,
    reports_bytes: bool,
}

impl Receiver<'_> {
    /// Starts the receiver and waits until it listens. `address` is `unix:PATH`, or a host
    /// whose port is chosen here.
    pub fn start(&self, address: &str) -> Outcome<Waiting> {
        let (mut command, reports_bytes, address) = match self {
            Receiver::Discard { program, into, waking } => {
                let mut command = Command::new(program);
                command.args(waking.options());
                command.args(into.iter().flat_map(|into| ["--into".as_ref(), into.as_os_str()]));
                (command, true, address.to_string())
            }
            Receiver::Evermap { program, raw, into } => {
                let address = with_free_port(address)?;
                let mut command = Command::new(program);
                command.arg("receive").args(raw.then_some("--raw"));
                command.arg(&address).arg(into);
                (command, false, address)
            }
        };
        if reports_bytes {
            command.arg(&address);
        }
        let stderr = tempfile::tempfile()?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr.try_clone()?);
        let start = Instant::now();
        let mut child = command.spawn()?;
        let output =
            BufReader::new(child.stdout.take().ok_or("the receiver's output is not a pipe")?);
        let mut waiting =
            Waiting { child: Some(child), output, stderr, start, address, reports_bytes };
        if reports_bytes {
            let mut line = String::new();
            waiting.output.read_line(&mut line)?;
            let address = line.trim().strip_prefix("ready ");
            waiting.address = address.ok_or("the receiver is not ready")?.to_string();
        } else {
            waiting.until_it_listens()?;
        }
        Ok(waiting)
    }
}

impl Waiting {
    /// Waits for the listening socket without connecting, which would look like the sender.
    fn until_it_listens(&mut self) -> Outcome {
        while !listens(&self.address) {
            check_interrupted()?;
            let ended = self.child.as_mut().map(Child::try_wait).transpose()?.flatten();
            if let Some(status) = ended {
                self.child = None;
                let said = last_lines(&mut self.stderr)?;
                return Err(
                    format!("the receiver ended before it listened: {status}: {said}").into()
                );
            }
            if self.start.elapsed() > TIMEOUT {
                return Err(format!("the receiver does not listen after {TIMEOUT:?}").into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Waits for the end of the receiver, and returns its report and its cost.
    pub fn finish(mut self) -> Outcome<(Option<Taken>, Cost)> {
        let child = self.child.take().ok_or("a receiver ends once")?;
        let (status, cost) = process::finish(child, Instant::now())?;
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        if !status.success() {
            let said = last_lines(&mut self.stderr)?;
            return Err(format!("the receiver failed: {status}: {said}").into());
        }
        let taken =
            if self.reports_bytes { Some(serde_json::from_str(text.trim())?) } else { None };
        Ok((taken, cost))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // An error means that the process has already ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends a file once. `sender` builds the command from the address.
pub fn send(
    bytes: u64,
    receiver: &Receiver<'_>,
    address: &str,
    sender: impl FnOnce(&str) -> Command,
) -> Outcome<Result<Sent, Failure>> {
    let waiting = receiver.start(address)?;
    let job = Job::new(sender(&waiting.address));
    let start = Instant::now();
    let cost = match process::run(job)? {
        Ok(cost) => cost,
        Err(failure) => return Ok(Err(failure)),
    };
    let (taken, receiver) = waiting.finish()?;
    let wall_ns = start.elapsed().as_nanos() as u64;
    if taken.is_some_and(|taken| taken.bytes != bytes) {
        return Err(format!("{bytes} bytes were sent, and {taken:?} arrived").into());
    }
    let connected_ns = taken.map(|taken| taken.connected_ns);
    Ok(Ok(Sent { bytes, wall_ns, connected_ns, sender: cost, receiver }))
}

/// Sending program.
#[derive(Clone, Debug)]
pub enum Sender {
    /// This benchmark's plain reader and writer.
    ReadSend {
        program: PathBuf,
        congestion: Option<&'static str>,
    },
    Socat(PathBuf),
    /// `evermap send` with an engine or its policy; raw on one connection, or with this many
    /// connections.
    Evermap {
        program: PathBuf,
        engine: Option<&'static str>,
        connections: Option<u32>,
    },
}

impl Sender {
    pub fn name(&self) -> String {
        match self {
            Sender::ReadSend { congestion: None, .. } => "read + send 64 KiB".to_string(),
            Sender::ReadSend { congestion: Some(name), .. } => {
                format!("read + send 64 KiB, {name}")
            }
            Sender::Socat(_) => "socat".to_string(),
            Sender::Evermap { engine, connections, .. } => {
                let engine =
                    engine.map_or("evermap send".to_string(), |engine| format!("send: {engine}"));
                match connections {
                    None => engine,
                    Some(1) => format!("{engine}, 1 connection"),
                    Some(count) => format!("{engine}, {count} connections"),
                }
            }
        }
    }

    /// Returns true if it requests a congestion control.
    pub fn is_unpaced(&self) -> bool {
        matches!(self, Sender::ReadSend { congestion: Some(_), .. })
    }

    pub fn is_peer(&self) -> bool {
        !matches!(self, Sender::Evermap { .. })
    }

    pub fn command(&self, file: &Path, address: &str) -> Command {
        match self {
            Sender::ReadSend { program, congestion } => {
                let mut command = Command::new(program);
                command.args(congestion.iter().flat_map(|name| ["--congestion", name]));
                command.arg(file).arg(address);
                command
            }
            Sender::Socat(program) => {
                let to = match address.strip_prefix("unix:") {
                    Some(path) => format!("UNIX-CONNECT:{path}"),
                    None => format!("TCP:{address}"),
                };
                let mut command = Command::new(program);
                command.arg("-u").arg(format!("OPEN:{},rdonly", file.display())).arg(to);
                command
            }
            Sender::Evermap { program, engine, connections } => {
                let mut command = Command::new(program);
                command.arg("send");
                command.args(engine.iter().flat_map(|engine| ["--engine", engine]));
                match connections {
                    None => command.arg("--raw"),
                    Some(count) => command.args(["--connections", &count.to_string()]),
                };
                command.arg(file).arg(address);
                command
            }
        }
    }
}

/// Returns the address with a port that is free now.
pub fn with_free_port(address: &str) -> Outcome<String> {
    if address.starts_with("unix:") {
        return Ok(address.to_string());
    }
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    Ok(TcpListener::bind((host, 0))?.local_addr()?.to_string())
}

/// Returns true if a process listens at this address of this machine.
pub fn listens(address: &str) -> bool {
    if let Some(path) = address.strip_prefix("unix:") {
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
        // A socket has its name before it listens; this flag is set when it does.
        let listens = |line: &str| line.ends_with(path) && line.contains(" 00010000 ");
        return sockets.lines().any(listens);
    }
    let Some(port) = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok()) else {
        return false;
    };
    let wanted = format!(":{port:04X}");
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    let has = |table: &String| {
        table.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // State 0A is LISTEN.
            fields.get(1).is_some_and(|local| local.ends_with(&wanted))
                && fields.get(3) == Some(&"0A")
        })
    };
    tables.iter().flatten().any(has)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_listening_socket_is_found_without_connecting() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert!(listens(&address));
        drop(listener);
        assert!(!listens(&address));
        assert!(!listens("unix:/nonexistent") && !listens("nonsense"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = format!("unix:{}", path.display());
        let bound = rustix::net::socket(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            None,
        )
        .unwrap();
        rustix::net::bind(&bound, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
        assert!(path.exists() && !listens(&address));
        rustix::net::listen(&bound, 1).unwrap();
        assert!(listens(&address));
    }

    #[test]
    fn each_sender_gets_its_own_arguments() {
        let line = |sender: Sender, address: &str| {
            let command = sender.command(Path::new("/f"), address);
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        let evermap = |engine, connections| Sender::Evermap {
            program: "evermap".into(),
            engine,
            connections,
        };
        assert_eq!(line(evermap(None, None), "h:1"), "evermap send --raw /f h:1");
        assert_eq!(
            line(evermap(Some("splice"), Some(2)), "h:1"),
            "evermap send --engine splice --connections 2 /f h:1"
        );
        assert_eq!(
            line(Sender::Socat("socat".into()), "unix:/s"),
            "socat -u OPEN:/f,rdonly UNIX-CONNECT:/s"
        );
        assert_eq!(evermap(Some("splice"), Some(2)).name(), "send: splice, 2 connections");
    }
}
