//! `evermap receive`: files from senders elsewhere.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use evermap_transfer::Error;
use evermap_transfer::net::{Address, Receive, ReceiveReport};

use super::transfer::{Level, told_traffic};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::progress::ToolProgress;
use crate::remote::{self, tree};

/// Receive a file from `evermap send`, or bytes from any program
///
/// The file has its name when all of it is there; what had the name is replaced in one step. A transfer that
/// fails leaves nothing. Whoever can connect can send: listen where only they can whom you trust.
#[derive(Debug, clap::Args)]
pub struct ReceiveFile {
    /// Where to listen: HOST:PORT, [IPV6]:PORT, or unix:PATH; port 0 takes any that is free
    #[arg(value_name = "ADDRESS", required_unless_present = "stdio")]
    address: Option<OsString>,
    /// The file to make, or a directory, in which it gets the sender's name
    #[arg(value_name = "DEST", required_unless_present_any = ["discard", "stdio"])]
    destination: Option<PathBuf>,
    /// What holds when the sender is told that it has arrived: `data` is on the disk, `full` under its name
    #[arg(long, value_name = "LEVEL", default_value = "none")]
    durability: Level,
    /// Read the file back from the disk, and let the sender compare it, before it gets its name
    #[arg(long)]
    verify: bool,
    /// Take all bytes of one connection for the contents, from programs as socat or nc
    #[arg(long, conflicts_with = "verify")]
    raw: bool,
    /// Throw away what comes: to measure senders and networks
    #[arg(long, conflicts_with = "verify")]
    discard: bool,
    /// Take at most so many bytes from one transfer, e.g. 20G [default: half of the free space; in memory an eighth of it]
    #[arg(long, value_name = "BYTES", value_parser = super::transfer::bytes)]
    room: Option<u64>,
    /// Accept names that begin with a dot into a directory
    #[arg(long)]
    dot_files: bool,
    /// Receive over standard input and output into this DEST, as `evermap send` has it done by ssh
    #[arg(long, value_name = "DEST", conflicts_with_all = ["address", "discard", "raw", "once", "keep_listening"])]
    stdio: Option<PathBuf>,
    /// With --stdio, a directory of this name comes, as a tar stream
    #[arg(long, value_name = "NAME", requires = "stdio")]
    tree: Option<OsString>,
    /// End after one transfer, as it does anyway
    #[arg(long)]
    once: bool,
    /// Go on receiving until interrupted
    #[arg(long, conflicts_with = "once")]
    keep_listening: bool,
    /// What was received and what it has cost, as one JSON object each
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
            receive = receive.room_bytes_max(room);
        }
        if !self.keep_listening {
            receive = receive.on_progress(progress.callback());
        }
        let listening = receive.listen(&address)?;
        // On stderr, as only the script that asked for any port has to read it.
        output::warn(&format!("listening at {}", listening.address()));
        if self.keep_listening {
            return self.keep_on(listening);
        }
        let received = listening.once();
        drop(progress);
        let mut output = Output::new();
        self.tell(&received?, &mut output)?;
        output.finish()
    }

    /// The other end of ssh: whoever it is has this user's rights already. Nothing is said on standard output, which
    /// belongs to the protocol.
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
            receive = receive.room_bytes_max(room);
        }
        let received = receive.over(socket);
        let closed = closing.end();
        for not in &received?.not_kept {
            output::warn(&format!("{}: {} not kept: {}", not.path.display(), not.what, not.why));
        }
        closed.map_err(Failure::Output)
    }

    /// Each outcome is told when it is known, by whichever thread knows it.
    fn keep_on(&self, listening: evermap_transfer::net::Listening) -> Result<(), Failure> {
        let one_at_a_time = Mutex::new(());
        listening.serve(|outcome| {
            let _turn = one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
            let told = outcome.map_err(Failure::from).and_then(|report| {
                let mut output = Output::new();
                self.tell(&report, &mut output)?;
                output.finish()
            });
            if let Err(failure) = told {
                failure.say();
            }
        })?;
        Err(Error::Cancelled { left: "what was received before is there".into() }.into())
    }

    fn tell(&self, report: &ReceiveReport, output: &mut Output) -> Result<(), Failure> {
        for not in &report.not_kept {
            output::warn(&format!("{}: {} not kept: {}", not.path.display(), not.what, not.why));
        }
        if self.json {
            return output.json(report);
        }
        let name = match (&report.path, &self.destination) {
            (Some(path), _) => path.display().to_string(),
            (None, Some(stream)) if !self.discard => stream.display().to_string(),
            (None, _) => "thrown away".into(),
        };
        output.line(&format!(
            "{}: {} from {}{}",
            output::plain(&name),
            told_traffic(report.size_bytes, &report.traffic),
            report.traffic.connections.first().map_or("nobody", |connection| &connection.peer),
            if report.verified { ", verified" } else { "" }
        ))
    }
}
