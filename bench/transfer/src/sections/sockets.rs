//! Sends a file through a socket of this machine: cost of the sender, cost of the receiver, and the
//! time.
//!
//! A receiver discards the data (TCP: without copying it; UNIX: by moving pages to `/dev/null`), or
//! reads it and writes it to a file, or is `evermap receive`. The time runs from before the start
//! of the sender to the end of the receiver; in the comparison with a web server it covers only the
//! connection.

use std::path::{Path, PathBuf};

use harness::Outcome;
use harness::bench::skip_on_error;
use harness::goals::Goal;
use harness::process::{Failure, find_program};
use harness::raw::Origin;
use harness::samples::{Samples, figure};
use harness::table::Table;
use harness::units::{GIB, MIB, megabytes_per_second};
use harness::volumes::Volume;
use harness::{caches, ends, memory};
use serde_json::json;

use crate::bench::Bench;
use crate::compete::remove;
use crate::corpus::{Entry, Kind};
use crate::network::{self, Receiver, Sender, Sent, Waking};
use crate::nginx::Nginx;

pub const ENGINES: [&str; 4] = ["read-write", "mmap-write", "sendfile", "splice"];
const TCP: &str = "127.0.0.1:0";

/// Result of one sender.
pub struct Result {
    pub name: String,
    pub sent: std::result::Result<Vec<Sent>, Failure>,
}

impl Result {
    pub fn samples(&self, of: impl Fn(&Sent) -> f64) -> Samples {
        let mut samples = Samples::new();
        self.sent.iter().flatten().for_each(|sent| samples.push(of(sent)));
        samples
    }

    pub fn wall_ms(&self) -> Samples {
        self.samples(|sent| sent.wall_ns as f64 / 1e6)
    }
}

/// Runs senders in turns, to the same kind of receiver.
pub struct Contest<'a> {
    pub section: &'a str,
    pub cell: &'a str,
    pub source: &'a Path,
    pub bytes: u64,
    pub address: &'a str,
    pub senders: &'a [Sender],
    pub receiver: &'a Receiver<'a>,
    /// File that the receiver makes, which is checked and removed.
    pub into: Option<&'a Path>,
}

impl Contest<'_> {
    pub fn hold(&self, bench: &mut Bench) -> Outcome<Vec<Result>> {
        let new = |sender: &Sender| Result { name: sender.name(), sent: Ok(Vec::new()) };
        let mut results: Vec<Result> = self.senders.iter().map(new).collect();
        caches::fill(self.source)?;
        for round in bench.options.first_round()..=bench.options.rounds {
            for turn in 0..self.senders.len() {
                let index = (turn + round) % self.senders.len();
                let (sender, result) = (&self.senders[index], &mut results[index]);
                let Ok(all) = &mut result.sent else { continue };
                match self.send(bench, sender)? {
                    Ok(sent) => {
                        let (section, cell, subject) = (self.section, self.cell, &result.name);
                        bench.raw.add(Origin { section, cell, subject, round }, sent)?;
                        if round > 0 {
                            all.push(sent);
                        }
                    }
                    Err(failure) => {
                        eprintln!("{}: {}: {failure}", self.cell, result.name);
                        result.sent = Err(failure);
                    }
                }
            }
        }
        eprintln!("{}: {}", self.section, self.cell);
        Ok(results)
    }

    fn send(&self, bench: &Bench, sender: &Sender) -> Outcome<std::result::Result<Sent, Failure>> {
        ends::check_interrupted()?;
        if let Some(path) = self.address.strip_prefix("unix:") {
            remove(Path::new(path))?;
        }
        self.into.map(remove).transpose()?;
        if bench.options.warm_memory {
            memory::warm(if self.into.is_some() { self.bytes } else { 0 })?;
        }
        let command = |address: &str| sender.command(self.source, address);
        let sent = network::send(self.bytes, self.receiver, self.address, command);
        let sent = match sent {
            Ok(sent) => sent,
            // A receiver that can't do it is a failure of this step, not of the run.
            Err(error) => Err(error.to_string()),
        };
        if let (Ok(_), Some(into)) = (&sent, self.into) {
            let same = caches::same_bytes(self.source, into)?;
            if !same {
                return Err(format!("**wrong bytes** from {}", sender.name()).into());
            }
            remove(into)?;
        }
        Ok(sent)
    }
}

/// Table of the time and the cost of both ends.
pub fn table(results: &[Result]) -> Table {
    let mut table =
        Table::new(&["", "wall, ms", "MB/s", "sender, CPU ms", "receiver, CPU ms", "x the first"]);
    let first = results.first().map_or(f64::NAN, |first| first.wall_ms().median());
    for result in results {
        if let Err(failure) = &result.sent {
            let why = failure.lines().next().unwrap_or_default();
            table.row(&[result.name.as_str(), "-", "-", "-", "-", why]);
            continue;
        }
        let wall = result.wall_ms();
        let bytes = result.sent.iter().flatten().next().map_or(0, |sent| sent.bytes);
        table.row(&[
            result.name.clone(),
            wall.to_string(),
            figure(megabytes_per_second(bytes, wall.median())),
            result.samples(|sent| sent.sender.cpu_ms()).to_string(),
            result.samples(|sent| sent.receiver.cpu_ms()).to_string(),
            figure(first / wall.median()),
        ]);
    }
    table
}

/// Returns all senders that can send a file unchanged.
pub fn senders(bench: &Bench, evermap: Option<&Path>) -> Vec<Sender> {
    let program = bench.options.own_folder().join("read-send");
    let mut senders = vec![Sender::ReadSend { program: program.clone(), congestion: None }];
    // Evermap requests this congestion control within one machine; UNIX sockets have none.
    senders.push(Sender::ReadSend { program, congestion: Some("reno") });
    senders.extend(find_program("socat").map(Sender::Socat));
    if let Some(program) = evermap {
        let engines = std::iter::once(None).chain(ENGINES.map(Some));
        senders.extend(engines.map(|engine| Sender::Evermap {
            program: program.to_path_buf(),
            engine,
            connections: None,
        }));
    }
    let wanted = |sender: &Sender| bench.options.wants_subject(&sender.name());
    senders.into_iter().filter(wanted).collect()
}

pub fn report(bench: &mut Bench) -> Outcome {
    let evermap = bench.evermap();
    let Some(volume) = bench.volume("ext4") else { return Ok(()) };
    let Some(memory) = bench.volume("tmpfs") else { return Ok(()) };
    let entry = Entry::new(Kind::Random, 64 * MIB, bench.options.quick);
    let source = entry.make(volume.folder())?;
    let senders = senders(bench, evermap.as_deref());
    let paced: Vec<Sender> =
        senders.iter().filter(|sender| !sender.is_unpaced()).cloned().collect();
    let discard = bench.options.own_folder().join("discard");
    let into = memory.folder().join("received");
    let unix = format!("unix:{}", bench.folder("sockets")?.join("socket").display());
    for (kind, address) in [("TCP", TCP), ("UNIX", unix.as_str())] {
        let throwing = |waking| Receiver::Discard { program: &discard, into: None, waking };
        let waking = Waking::Always;
        let writing = Receiver::Discard { program: &discard, into: Some(&into), waking };
        let mut receivers = vec![
            ("discarded", throwing(Waking::Always), None),
            ("read and written to a file", writing, Some(into.as_path())),
        ];
        if kind == "TCP" {
            let seldom = "discarded by a receiver that is woken each 128 KiB";
            receivers.insert(1, (seldom, throwing(Waking::Seldom), None));
        }
        if let Some(program) = &evermap {
            let own = Receiver::Evermap { program, raw: true, into: &into };
            receivers.push(("`evermap receive` to a file", own, Some(into.as_path())));
        }
        for (what, receiver, into) in &receivers {
            println!("### {kind}, {}, {what}\n", entry.name());
            let cell = format!("{kind}, {what}");
            let contest = Contest {
                section: "sockets",
                cell: &cell,
                source: &source,
                bytes: entry.bytes,
                address,
                senders: if kind == "TCP" { &senders } else { &paced },
                receiver,
                into: *into,
            };
            println!("{}", table(&contest.hold(bench)?));
        }
    }
    Ok(())
}

/// Judges sending a gigabyte, against a plain reader and writer and against a web server. One
/// receiver is woken for each segment, as most are, and one is not: waking takes most of a sender's
/// time if the receiver's processor sleeps, and that time is not the sender's own work.
pub fn goals(bench: &mut Bench, evermap: &Path, volume: &Volume) -> Outcome {
    let entry = Entry::new(Kind::Random, GIB, bench.options.quick);
    let source = entry.make(volume.folder())?;
    let discard = bench.options.own_folder().join("discard");
    let read_send = bench.options.own_folder().join("read-send");
    let plain = Sender::ReadSend { program: read_send.clone(), congestion: None };
    let unpaced = Sender::ReadSend { program: read_send, congestion: Some("reno") };
    let program = evermap.to_path_buf();
    let own = Sender::Evermap { program, engine: None, connections: None };
    let senders = [plain, own.clone(), unpaced];
    for (waking, how) in
        [(Waking::Always, "woken for each segment"), (Waking::Seldom, "woken each 128 KiB")]
    {
        let contest = Contest {
            section: "goals",
            cell: &format!("{} to a socket, {how}", entry.name()),
            source: &source,
            bytes: entry.bytes,
            address: TCP,
            senders: &senders,
            receiver: &Receiver::Discard { program: &discard, into: None, waking },
            into: None,
        };
        beside_read_send(bench, &contest)?;
        beside_nginx(bench, &contest, waking, &own)?;
    }
    Ok(())
}

/// Judges the sender's processor time.
fn beside_read_send(bench: &mut Bench, contest: &Contest<'_>) -> Outcome {
    let results = contest.hold(bench)?;
    let what = format!("{}: sender's CPU, evermap / read + send", contest.cell);
    let limit = Goal::AtMost(1.0 / 6.0);
    let mut ratios = Samples::new();
    if let (Ok(plain), Ok(own)) = (&results[0].sent, &results[1].sent) {
        for (plain, own) in plain.iter().zip(own) {
            ratios.push(own.sender.cpu_ms() / plain.sender.cpu_ms());
        }
    }
    println!("{}", table(&results));
    match &results[1].sent {
        Ok(_) => {
            bench.goals.judge(&what, "read + send 64 KiB", &ratios, limit);
        }
        Err(failure) => bench.goals.unmeasured(&what, limit, failure),
    }
    Ok(())
}

/// Judges the connection's rate, in turns with nginx.
fn beside_nginx(bench: &mut Bench, contest: &Contest<'_>, waking: Waking, own: &Sender) -> Outcome {
    let what = format!("{}: rate of the connection, evermap / nginx", contest.cell);
    let limit = Goal::AtLeast(1.0);
    let own_folder = bench.folder("nginx")?;
    let files: PathBuf = contest.source.parent().ok_or("a file is in a folder")?.to_path_buf();
    let Some(server) = skip_on_error("nginx", Nginx::start(&own_folder, &files)) else {
        bench.goals.unmeasured(&what, limit, "nginx is not installed, or does not start");
        return Ok(());
    };
    let name = contest.source.file_name().ok_or("a file has a name")?.to_string_lossy();
    let discard = bench.options.own_folder().join("discard");
    let (mut ratios, mut cpu) = (Samples::new(), Samples::new());
    for round in bench.options.first_round()..=bench.options.rounds {
        let (taken, cpu_ns) = server.send(&discard, waking, &name)?;
        if taken.bytes != contest.bytes {
            return Err(format!("nginx sent {} bytes of {}", taken.bytes, contest.bytes).into());
        }
        let (section, cell) = (contest.section, contest.cell);
        let origin = Origin { section, cell, subject: "nginx", round };
        let line = json!({"connected_ns": taken.connected_ns, "sender_cpu_ns": cpu_ns});
        bench.raw.add(origin, line)?;
        let sent = match contest.send(bench, own)? {
            Ok(sent) => sent,
            Err(failure) => {
                bench.goals.unmeasured(&what, limit, &failure);
                return Ok(());
            }
        };
        if round > 0 {
            let own_ns = sent.connected_ns.ok_or("the receiver did not report its time")?;
            ratios.push(taken.connected_ns as f64 / own_ns as f64);
            cpu.push(sent.sender.cpu_ms() * 1e6 / cpu_ns as f64);
        }
    }
    println!("- {}: sender's CPU, evermap / nginx {cpu}\n", contest.cell);
    bench.goals.judge(&what, "nginx", &ratios, limit);
    Ok(())
}
