//! `evermap receive`: receives files from senders.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use evermap_transfer::Error;
use evermap_transfer::net::{Address, Receive, ReceiveReport};

use super::transfer::{Level, format_traffic};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::progress::ToolProgress;
use crate::remote::{self, tree};

/// Receive a file from `evermap send`, or bytes from any program
///
/// The file is published when all of it has arrived, and replaces an existing file atomically. A
/// failed transfer leaves nothing. Anyone who can connect can send: listen only where you trust all
/// who can connect.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap receive 10.0.0.2:7000 /backup --keep-listening")]
pub struct ReceiveFile {
    /// Address to listen at: HOST:PORT, [IPV6]:PORT, or unix:PATH; port 0 chooses a free one
    #[arg(value_name = "ADDRESS", required_unless_present = "stdio")]
    address: Option<OsString>,
    /// Target file, or a directory in which the sender's file name is used
    #[arg(value_name = "DEST", required_unless_present_any = ["discard", "stdio"])]
    destination: Option<PathBuf>,
    /// Guarantee when the sender is told of success: `data` flushes the contents, `full` also the
    /// name
    #[arg(long, value_name = "LEVEL", default_value = "none")]
    durability: Level,
    /// Read the file back from the disk and let the sender compare it before publishing it
    #[arg(long)]
    verify: bool,
    /// Store all bytes of one connection, from programs such as socat or nc
    #[arg(long, conflicts_with = "verify")]
    raw: bool,
    /// Discard the data, to measure senders and networks
    #[arg(long, conflicts_with = "verify")]
    discard: bool,
    /// Limit per transfer, e.g. 20G [default: half of the free space; at most an eighth of memory
    /// on a file system in memory]
    #[arg(long, value_name = "BYTES", value_parser = super::transfer::bytes)]
    room: Option<u64>,
    /// Accept names with a leading dot in a directory
    #[arg(long)]
    dot_files: bool,
    /// Receive over standard input and output into this DEST, as started by `evermap send` over ssh
    #[arg(long, value_name = "DEST", conflicts_with_all = ["address", "discard", "raw", "once", "keep_listening"])]
    stdio: Option<PathBuf>,
    /// With --stdio, receive a directory of this name as a tar stream
    #[arg(long, value_name = "NAME", requires = "stdio")]
    tree: Option<OsString>,
    /// End after one transfer (default)
    #[arg(long)]
    once: bool,
    /// Receive until interrupted
    #[arg(long, conflicts_with = "once")]
    keep_listening: bool,
    /// Show each result and its cost as a JSON object
    #[arg(long)]
    json: bool,
}

impl ReceiveFile {
    pub fn run(&self) -> Result<(), Failure> {
        if let Some(destination) = &self.stdio {
            return self.over_stdio(destination);
        }
        let address = Address::parse(self.address.as_deref().unwrap_or_default())?;
        let destination = self.destination.clone().unwrap_or_default();
        let progress = ToolProgress::new(&destination, "receiving");
        let mut receive = Receive::new(&destination)
            .durability(self.durability.into())
            .verify(self.verify)
            .raw(self.raw)
            .discard(self.discard)
            .dot_files(self.dot_files)
            .cancelled_by(evermap_transfer::cancelled_by_signals())
            .on_refused(|error| output::warn(&format!("{error} (still listening)")));
        if let Some(room) = self.room {
            receive = receive.transfer_bytes_max(room);
        }
        if !self.keep_listening {
            receive = receive.on_progress(progress.callback());
        }
        let listener = receive.listen(&address)?;
        // On stderr: only a script that requested port 0 needs it.
        output::warn(&format!("listening at {}", listener.address()));
        if self.keep_listening {
            return self.serve(listener);
        }
        let mut output = Output::beside(Some(&destination));
        let received = listener.once();
        drop(progress);
        self.print(&received?, &mut output)?;
        output.finish()
    }

    /// Receives over ssh. The peer has this user's rights already. Standard output belongs to the
    /// protocol.
    fn over_stdio(&self, destination: &Path) -> Result<(), Failure> {
        if let Some(name) = &self.tree {
            let input = std::io::stdin().lock();
            tree::receive(input, destination, name, self.durability.into())?;
            return Ok(());
        }
        let (socket, closing) = remote::socket().map_err(Failure::Output)?;
        let mut receive = Receive::new(destination)
            .durability(self.durability.into())
            .verify(self.verify)
            .dot_files(true)
            .cancelled_by(evermap_transfer::cancelled_by_signals());
        if let Some(room) = self.room {
            receive = receive.transfer_bytes_max(room);
        }
        let received = receive.over(socket);
        let closed = closing.end();
        for not in &received?.not_kept {
            output::warn(&format!("{}: {} not kept: {}", not.path.display(), not.what, not.why));
        }
        closed.map_err(Failure::Output)
    }

    /// Reports each outcome when it is known, from any thread.
    fn serve(&self, listener: evermap_transfer::net::Listener) -> Result<(), Failure> {
        let one_at_a_time = Mutex::new(());
        listener.serve(|outcome| {
            let _guard = one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
            let printed = outcome.map_err(Failure::from).and_then(|report| {
                let mut output = Output::new();
                self.print(&report, &mut output)?;
                output.finish()
            });
            if let Err(failure) = printed {
                failure.print();
            }
        })?;
        Err(Error::Cancelled { left: "files received before are kept".into() }.into())
    }

    fn print(&self, report: &ReceiveReport, output: &mut Output) -> Result<(), Failure> {
        for not in &report.not_kept {
            output::warn(&format!("{}: {} not kept: {}", not.path.display(), not.what, not.why));
        }
        if self.json {
            return output.json(report);
        }
        let name = match (&report.path, &self.destination) {
            (Some(path), _) => path.display().to_string(),
            (None, Some(stream)) if !self.discard => stream.display().to_string(),
            (None, _) => "discarded".into(),
        };
        output.line(&format!(
            "{}: {} from {}{}",
            output::plain(&name),
            format_traffic(report.size_bytes, &report.traffic),
            report
                .traffic
                .connections
                .first()
                .map_or("unknown peer", |connection| &connection.peer),
            if report.verified { ", verified" } else { "" }
        ))
    }
}
