//! Performs one load and measures it from inside its own process:
//! `child load --subject NAME --pages LIST --touched PERCENT --order ORDER [--written] [--latch]
//! [--group DIR] FILE`.
//!
//! Prints one JSON object, [`Taken`]. The list of pages and the memory for the measurements are
//! ready before the load begins. With `--latch` the process prints a line and waits for the end of
//! its input before it loads. With `--group` it first joins that control group.

pub mod rate;

mod held;
mod memory;
mod peers;

use std::path::PathBuf;
use std::time::Instant;

use evermap_observe::Moment;
use harness::Outcome;
use lexopt::{Arg, Parser, ValueExt};
use serde::{Deserialize, Serialize};

use crate::work::{self, Order, PAGE_BYTES, Sums, Work};
use held::Held;

/// Measurements of one load. Times are in seconds from the start of the load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// Until the loading call returned.
    pub loaded_s: f64,
    /// Until the first page was touched.
    pub first_page_s: f64,
    /// Until all pages were touched.
    pub finished_s: f64,
    /// Until the whole file was usable, from evermap's report.
    pub complete_s: Option<f64>,
    /// This and the next three fields cover all threads until everything was loaded and
    /// touched.
    pub user_s: f64,
    pub system_s: f64,
    pub minor_faults: u64,
    pub major_faults: u64,
    /// Growth of this process's memory: private, private in huge pages, and pages of files.
    pub private_bytes: u64,
    pub huge_bytes: u64,
    pub mapped_bytes: u64,
    pub checksum: String,
    /// Evermap's method, and its reason.
    pub method: Option<String>,
    pub why: Option<String>,
}

/// Command line of the child.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) subject: String,
    pub(crate) work: Work,
    pub(crate) file: PathBuf,
    list: PathBuf,
    group: Option<PathBuf>,
    has_latch: bool,
}

/// Loads, works, and prints the measurements.
pub fn load(arguments: &[&str]) -> Outcome {
    let asked = parse(arguments)?;
    let pages = work::read_list(&asked.list)?;
    if let Some(group) = &asked.group {
        std::fs::write(group.join("cgroup.procs"), std::process::id().to_string())?;
    }
    if asked.has_latch {
        println!("ready");
        std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink())?;
    }
    let taken = measure(&asked, &pages)?;
    println!("{}", serde_json::to_string(&taken)?);
    Ok(())
}

fn measure(asked: &Asked, pages: &[u32]) -> Outcome<Taken> {
    let before = memory::now()?;
    let mut sums = Sums::default();
    let (begun, start) = (Moment::now(), Instant::now());
    let mut held = Held::load(asked)?;
    let loaded_s = start.elapsed().as_secs_f64();
    let is_written = asked.work.is_written;
    let (first, others) = pages.split_at(pages.len().min(1));
    touch(&mut held, first, is_written, &mut sums)?;
    let first_page_s = start.elapsed().as_secs_f64();
    touch(&mut held, others, is_written, &mut sums)?;
    let finished_s = start.elapsed().as_secs_f64();
    held.wait()?;
    let usage = begun.since();
    let after = memory::now()?;
    if is_written {
        let bytes = held.bytes();
        pages.iter().for_each(|page| sums.read_again(&bytes[range(*page)]));
    }
    let report = held.report();
    Ok(Taken {
        loaded_s,
        first_page_s,
        finished_s,
        complete_s: report.as_ref().and_then(|report| report.complete_s),
        user_s: usage.user_s,
        system_s: usage.system_s,
        minor_faults: usage.minor_faults,
        major_faults: usage.major_faults,
        private_bytes: after.private_bytes.saturating_sub(before.private_bytes),
        huge_bytes: after.huge_bytes.saturating_sub(before.huge_bytes),
        mapped_bytes: after.mapped_bytes.saturating_sub(before.mapped_bytes),
        checksum: sums.checksum(),
        method: report.as_ref().map(|report| report.choice.method.to_string()),
        why: held.why(),
    })
}

/// Touches these pages of the loaded file.
fn touch(held: &mut Held, pages: &[u32], is_written: bool, sums: &mut Sums) -> Outcome {
    if is_written {
        let bytes = held.bytes_mut()?;
        pages.iter().for_each(|page| sums.write(&mut bytes[range(*page)]));
    } else {
        let bytes = held.bytes();
        pages.iter().for_each(|page| sums.read(&bytes[range(*page)]));
    }
    Ok(())
}

fn range(page: u32) -> std::ops::Range<usize> {
    let begin = page as usize * PAGE_BYTES;
    begin..begin + PAGE_BYTES
}

fn parse(arguments: &[&str]) -> Outcome<Asked> {
    let mut parser = Parser::from_args(arguments);
    let (mut subject, mut list, mut file, mut group) = (None, None, None, None);
    let mut has_latch = false;
    let mut work = Work::read(100, Order::Sequential);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("subject") => subject = Some(parser.value()?.string()?),
            Arg::Long("pages") => list = Some(parser.value()?.into()),
            Arg::Long("touched") => work.touched_percent = parser.value()?.parse()?,
            Arg::Long("written") => work.is_written = true,
            Arg::Long("order") => {
                let name = parser.value()?.string()?;
                work.order = Order::from_name(&name).ok_or("no such order")?;
            }
            Arg::Long("latch") => has_latch = true,
            Arg::Long("group") => group = Some(parser.value()?.into()),
            Arg::Value(path) if file.is_none() => file = Some(path.into()),
            _ => return Err(argument.unexpected().into()),
        }
    }
    match (subject, list, file) {
        (Some(subject), Some(list), Some(file)) => {
            Ok(Asked { subject, work, file, list, group, has_latch })
        }
        _ => Err("--subject, --pages and a file are needed".into()),
    }
}
