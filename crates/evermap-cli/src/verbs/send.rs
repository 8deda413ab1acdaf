//! `evermap send`: a file to a receiver elsewhere.

use std::ffi::OsString;
use std::path::PathBuf;

use evermap_transfer::engines::EngineKind;
use evermap_transfer::net::{Address, Send, SendReport};

use super::transfer::told_traffic;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::progress::ToolProgress;

/// Send a file to `evermap receive`, or its bytes to any program
///
/// The receiver gives the file its name when all of it is there, with its holes, mode and times; when this command says that it is
/// done, that has happened. Nothing is encrypted, and nobody is asked who they are: for this machine, networks
/// that are trusted, or through a tunnel.
#[derive(Debug, clap::Args)]
pub struct SendFile {
    /// What to send
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where the receiver is: HOST:PORT, [IPV6]:PORT, or unix:PATH
    #[arg(value_name = "ADDRESS")]
    address: OsString,
    /// Move the bytes this way and no other
    #[arg(long, value_name = "NAME", value_parser = super::copy::engine)]
    engine: Option<EngineKind>,
    /// Send parts at the same time over so many connections
    #[arg(long, value_name = "K", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=64))]
    connections: u16,
    /// Let the receiver read back what it stored, and compare that with the file
    #[arg(long)]
    verify: bool,
    /// Send the bytes and nothing else, to programs as socat or nc; FILE may be a stream
    #[arg(long, conflicts_with_all = ["verify", "connections"])]
    raw: bool,
    /// What was sent and what it has cost, as one JSON object
    #[arg(long)]
    json: bool,
}

impl SendFile {
    pub fn run(&self) -> Result<(), Failure> {
        let address = Address::parse(&self.address)?;
        let progress = ToolProgress::new(&self.file, "sending");
        let mut send = Send::new(&self.file)
            .connections(self.connections)
            .verify(self.verify)
            .raw(self.raw)
            .cancelled_by(evermap_transfer::cancelled_by_signals())
            .on_progress(progress.callback());
        if let Some(engine) = self.engine {
            send = send.engine(engine);
        }
        let sent = send.to(&address);
        drop(progress);
        self.tell(&sent?, &address)
    }

    fn tell(&self, report: &SendReport, address: &Address) -> Result<(), Failure> {
        let mut output = Output::new();
        match self.json {
            true => output.json(report)?,
            false => output.line(&format!(
                "{}: {} to {address}{}",
                output::plain(&report.path.display().to_string()),
                told_traffic(report.size_bytes, &report.traffic),
                match (report.published, report.verified) {
                    (true, true) => ", verified",
                    (true, false) => "",
                    (false, _) if self.raw => ", as raw bytes",
                    (false, _) => ", and thrown away there",
                }
            ))?,
        }
        output.finish()
    }
}
