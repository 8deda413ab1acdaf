//! `evermap send`: sends a file to a receiver.

use std::ffi::{OsStr, OsString};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use evermap_transfer::engines::EngineKind;
use evermap_transfer::net::{Address, Send, SendReport};

use super::transfer::{Level, format_traffic};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::progress::ToolProgress;
use crate::remote::tree::{self, TreeSent};
use crate::remote::{Remote, Way};

/// Timeout for a user to answer ssh's questions.
const ASKING: Duration = Duration::from_secs(600);

/// Send a file to `evermap receive`, or its bytes to any program
///
/// The receiver publishes the file when all of it has arrived, with its holes, mode and times. When
/// this command succeeds, that has happened. HOST:PATH is reached by ssh; FILE may then be a
/// directory. Other addresses are neither encrypted nor authenticated: use them within this machine
/// or in trusted networks.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap send photos host:/backup
  evermap send disk.img 10.0.0.2:7000 --connections 4")]
pub struct SendFile {
    /// File to send
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Destination: [USER@]HOST:PATH for ssh, or a receiver's address: HOST:PORT, [IPV6]:PORT, or
    /// unix:PATH
    #[arg(value_name = "DEST")]
    address: OsString,
    /// Use only this engine
    #[arg(long, value_name = "NAME", value_parser = super::copy::engine)]
    engine: Option<EngineKind>,
    /// Number of parallel connections
    #[arg(long, value_name = "K", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=64))]
    connections: u16,
    /// Make the receiver read back its copy, and compare it with the file
    #[arg(long)]
    verify: bool,
    /// Send only the bytes, to programs such as socat or nc; FILE may be a stream
    #[arg(long, conflicts_with_all = ["verify", "connections"])]
    raw: bool,
    /// Guarantee on return, with ssh only: `data` flushes the contents there, `full` also the name
    #[arg(long, value_name = "LEVEL", default_value = "none")]
    durability: Level,
    /// ssh command with options, separated by spaces
    #[arg(long, value_name = "COMMAND", env = "EVERMAP_SSH", default_value = "ssh")]
    ssh: String,
    /// Name of this command on the other host
    #[arg(long, value_name = "COMMAND", default_value = "evermap")]
    remote_command: String,
    /// Show the result and cost as one JSON object
    #[arg(long)]
    json: bool,
}

impl SendFile {
    pub fn run(&self) -> Result<(), Failure> {
        if let Some(remote) = Remote::parse(&self.address) {
            return self.by_ssh(&remote);
        }
        self.check_address()?;
        let address = Address::parse(&self.address)?;
        if !matches!(self.durability, Level::None) {
            return Err(Failure::Usage(
                "--durability needs ssh; for an address use `evermap receive --durability`".into(),
            ));
        }
        let progress = ToolProgress::new(&self.file, "sending");
        let sent = self.sender(&progress).to(&address);
        drop(progress);
        self.print(&sent?, &address.to_string())
    }

    /// Refuses a user before an address, and a directory.
    fn check_address(&self) -> Result<(), Failure> {
        let text = self.address.to_string_lossy();
        if let (Some((_, host)), false) = (text.split_once('@'), text.starts_with("unix:")) {
            return Err(Failure::Usage(format!(
                "`{text}` is an address with a user, and addresses have none: `{host}` is the address; a file on that host, by ssh, is `USER@HOST:PATH`, and `./7000` one called by a number"
            )));
        }
        if self.file.is_dir() {
            return Err(Failure::Usage(format!(
                "{} is a directory, and to an address goes one file; send it by ssh, to HOST:PATH",
                self.file.display()
            )));
        }
        Ok(())
    }

    fn by_ssh(&self, remote: &Remote) -> Result<(), Failure> {
        if self.raw || self.connections > 1 {
            return Err(Failure::Usage("--raw and --connections cannot be used with ssh".into()));
        }
        let way = Way { ssh: &self.ssh, evermap: &self.remote_command };
        let failed = Failure::source(&self.file);
        let level = OsString::from(self.durability.name());
        let mut options = vec![OsStr::new("--durability"), &level];
        if std::fs::metadata(&self.file).map_err(failed)?.is_dir() {
            if self.verify || self.engine.is_some() {
                return Err(Failure::Usage(
                    "--verify and --engine cannot be used with a directory".into(),
                ));
            }
            let name = tree::name_of(&self.file)?;
            options.extend([OsStr::new("--tree"), &name]);
            let (running, socket) = remote.start(way, &options)?;
            let socket = UnixStream::from(socket);
            let sent = tree::send(&self.file, &socket);
            // The receiver keeps only complete trees, so ending the stream is safe.
            let _ = socket.shutdown(Shutdown::Write);
            let sent = running.end(sent.map_err(Failure::from))?;
            return self.print_tree(&sent, remote);
        }
        if self.verify {
            options.push(OsStr::new("--verify"));
        }
        let (running, socket) = remote.start(way, &options)?;
        let progress = ToolProgress::new(&self.file, "sending");
        // ssh may ask for a password first, and has its own timeout for that.
        let sent = self.sender(&progress).handshake_timeout(ASKING).over(socket);
        drop(progress);
        let sent = running.end(sent.map_err(Failure::from))?;
        self.print(&sent, &remote.to_string())
    }

    fn print_tree(&self, sent: &TreeSent, remote: &Remote) -> Result<(), Failure> {
        for not in &sent.not_kept {
            output::warn(&format!("{}: {}", not.path.display(), not.why));
        }
        let mut output = Output::new();
        match self.json {
            true => output.json(sent)?,
            false => output.line(&format!(
                "{}: {}, {}, to {remote}",
                output::plain(&sent.path.display().to_string()),
                output::counted(sent.files, "file"),
                output::bytes(sent.bytes)
            ))?,
        }
        output.finish()
    }

    fn sender(&self, progress: &ToolProgress) -> Send {
        let mut send = Send::new(&self.file)
            .connections(self.connections)
            .verify(self.verify)
            .raw(self.raw)
            .cancelled_by(evermap_transfer::cancelled_by_signals())
            .on_progress(progress.callback());
        if let Some(engine) = self.engine {
            send = send.engine(engine);
        }
        send
    }

    fn print(&self, report: &SendReport, address: &str) -> Result<(), Failure> {
        let mut output = Output::new();
        match self.json {
            true => output.json(report)?,
            false => output.line(&format!(
                "{}: {} to {address}{}",
                output::plain(&report.path.display().to_string()),
                format_traffic(report.size_bytes, &report.traffic),
                match (report.published, report.verified) {
                    (true, true) => ", verified",
                    (true, false) => "",
                    (false, _) if self.raw => ", as raw bytes",
                    (false, _) => ", discarded there",
                }
            ))?,
        }
        output.finish()
    }
}
