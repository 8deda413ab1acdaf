//! Files through sockets on this machine: a sender and a receiver, each a process of its own, with what each took.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::Outcome;
use common::ends::go_on;
use common::process::{self, Cost, Failure, Job, last_lines};
use serde::{Deserialize, Serialize};

const PATIENCE: Duration = Duration::from_secs(10);

/// One file, sent and received.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sent {
    pub bytes: u64,
    /// From before the sender was started to the receiver's end.
    pub wall_ns: u64,
    /// From the connection to its end, where the receiver says that.
    pub connected_ns: Option<u64>,
    pub sender: Cost,
    pub receiver: Cost,
}

/// What `discard` says at its end.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Taken {
    pub bytes: u64,
    pub connected_ns: u64,
}

/// How often a receiver that waits is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waking {
    /// For each segment, as programs are that don't ask for anything else.
    Always,
    /// When this much has come, as `evermap receive` is.
    Seldom,
}

/// What [`Waking::Seldom`] waits for.
const WAKING_BYTES: &str = "131072";

impl Waking {
    /// Options of `discard`.
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Waking::Always => &[],
            Waking::Seldom => &["--waking", WAKING_BYTES],
        }
    }
}

/// Who receives.
pub enum Receiver<'a> {
    /// This benchmark's `discard`, throwing away or, with a file, writing down.
    Discard { program: &'a Path, into: Option<&'a Path>, waking: Waking },
    /// `evermap receive`; raw takes whatever comes by one connection.
    Evermap { program: &'a Path, raw: bool, into: &'a Path },
}

/// A receiver that waits for connections. It is killed if this value goes away.
pub struct Waiting {
    child: Option<Child>,
    output: BufReader<ChildStdout>,
    complaint: File,
    start: Instant,
    pub address: String,
    says_what_came: bool,
}

impl Receiver<'_> {
    /// Starts it, and waits until it listens. `address` is `unix:PATH`, or a host whose port is chosen here.
    pub fn start(&self, address: &str) -> Outcome<Waiting> {
        let (mut command, says_what_came, address) = match self {
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
        if says_what_came {
            command.arg(&address);
        }
        let complaint = tempfile::tempfile()?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(complaint.try_clone()?);
        let start = Instant::now();
        let mut child = command.spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("a receiver has an output")?);
        let mut waiting =
            Waiting { child: Some(child), output, complaint, start, address, says_what_came };
        if says_what_came {
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
    /// Without connecting: that would be taken for the sender.
    fn until_it_listens(&mut self) -> Outcome {
        while !listens(&self.address) {
            go_on()?;
            let ended = self.child.as_mut().map(Child::try_wait).transpose()?.flatten();
            if let Some(status) = ended {
                self.child = None;
                let said = last_lines(&mut self.complaint)?;
                return Err(format!("the receiver did not listen: {status}: {said}").into());
            }
            if self.start.elapsed() > PATIENCE {
                return Err("the receiver does not listen".into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Waits for its end, and gives what came and what it took.
    pub fn finish(mut self) -> Outcome<(Option<Taken>, Cost)> {
        let child = self.child.take().ok_or("a receiver ends once")?;
        let (status, cost) = process::finish(child, Instant::now())?;
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        if !status.success() {
            let said = last_lines(&mut self.complaint)?;
            return Err(format!("the receiver failed: {status}: {said}").into());
        }
        let taken =
            if self.says_what_came { Some(serde_json::from_str(text.trim())?) } else { None };
        Ok((taken, cost))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // One that is gone already is no matter.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends once. `sender` makes the program from the address.
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
        return Err(format!("{bytes} bytes were sent, and {taken:?} came").into());
    }
    let connected_ns = taken.map(|taken| taken.connected_ns);
    Ok(Ok(Sent { bytes, wall_ns, connected_ns, sender: cost, receiver }))
}

/// How a sender is called.
#[derive(Clone, Debug)]
pub enum Sender {
    /// This benchmark's plain reader and writer.
    ReadSend {
        program: PathBuf,
        congestion: Option<&'static str>,
    },
    Socat(PathBuf),
    /// `evermap send` with an engine, or as it decides; raw by one connection, else by so many.
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

    /// Does it ask TCP for something?
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

/// A port that is free now.
pub fn with_free_port(address: &str) -> Outcome<String> {
    if address.starts_with("unix:") {
        return Ok(address.to_string());
    }
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    Ok(TcpListener::bind((host, 0))?.local_addr()?.to_string())
}

/// Does anybody listen at this address of this machine?
pub fn listens(address: &str) -> bool {
    if let Some(path) = address.strip_prefix("unix:") {
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
        // A socket has its name before it listens; then this flag is set.
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
            // 0A: listening.
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
    fn who_listens_is_seen_without_connecting() {
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
    fn senders_are_called_with_what_they_understand() {
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
