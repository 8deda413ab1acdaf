//! Counts the copies of each byte, as the paper's table 1.1 does: copies by the processor and by
//! the disk's DMA, context switches and system calls of each method.
//!
//! *By the processor*: the sampled time in routines that copy, divided by the time of one copy of
//! the same number of bytes in the same round. That unit comes from programs with a known number of
//! copies (`one_copy.rs`). The table also has the sampled shares.
//!
//! *By DMA*: bytes that the block device read and wrote while a cold file was copied and synced,
//! divided by the file's bytes. The device is a loop device of this run, so no other process uses
//! it.

mod one_copy;

use std::path::{Path, PathBuf};

use harness::Outcome;
use harness::bench::skip_on_error;
use harness::plots::bars::Bars;
use harness::process::{self, Cost, Job};
use harness::profile::{self, Profile, Sampler};
use harness::raw::Origin;
use harness::samples::Samples;
use harness::table::Table;
use harness::units::{MIB, size};
use harness::volumes::Volume;
use harness::{caches, ends};
use serde_json::json;

use crate::bench::{self, Bench};
use crate::compete::{self, Cell, prepare};
use crate::corpus::{Entry, Kind};
use crate::network::{Receiver, Sender, Waking};
use crate::subjects::{self, POLICY, Subject, Task};

use self::one_copy::{COPIES_BY_BUFFER, OneCopy};
use super::sockets;

const SECTOR_BYTES: u64 = 512;
/// Subjects that are sampled in a quick run.
const QUICK: [&str; 6] = [POLICY, "read-write", "splice", "uring-direct", "reflink", "cp"];

/// Measurements of one method.
#[derive(Default)]
struct Found {
    name: String,
    copies: Samples,
    profile: Profile,
    read: Samples,
    written: Samples,
    cost: Option<Cost>,
    system_calls: Option<u64>,
    failure: Option<String>,
    /// Engines that moved the bytes, from Evermap's report.
    engines: Option<String>,
}

pub fn report(bench: &mut Bench) -> Outcome {
    bench.evermap();
    let sampler = Sampler::find().and_then(|sampler| match profile::names_are_visible() {
        true => Ok(sampler),
        false => Err("the names of the kernel's routines are hidden (kernel.kptr_restrict)".into()),
    });
    let Some(sampler) = skip_on_error("copies by the processor", sampler) else { return Ok(()) };
    println!("- copies: {}\n", sampler.describe());
    let Some(buffered) = subjects::read_write(bench.options.own_folder()) else {
        println!("**Skipped**: `dd` is not installed, which calibrates the copies");
        return Ok(());
    };
    let mut drawn = Vec::new();
    for (kind, only) in [("ext4", None), ("xfs", Some(["reflink", "copy-file-range", "cp"]))] {
        let name = format!("{kind}-device");
        let Some(volume) = skip_on_error(kind, bench.volumes.on_loop(&name, kind)) else {
            continue;
        };
        // A sampled run is slow, so a quick run leaves out most subjects.
        let much =
            |subject: &Subject| bench.options.quick && !QUICK.contains(&subject.name.as_str());
        let wanted = |subject: &Subject| {
            !much(subject) && only.is_none_or(|only| only.contains(&subject.name.as_str()))
        };
        let mut all = vec![buffered.clone()];
        all.extend(bench::all_subjects(bench).into_iter().filter(wanted));
        println!("### Files, {kind} to {kind}\n");
        let found = files(bench, &sampler, &volume, &all)?;
        println!("{}", table(&found));
        drawn.extend(found.into_iter().map(|found| (format!("{}, {kind}", found.name), found)));
    }
    println!("### From a file to a TCP socket: the sender\n");
    let found = senders(bench, &sampler)?;
    println!("{}", table(&found));
    drawn.extend(found.into_iter().map(|found| (format!("{}, to TCP", found.name), found)));
    draw(bench, &drawn)
}

fn bytes(bench: &Bench) -> Entry {
    // Even a quick run needs some milliseconds of copying for enough samples.
    let mib = bench.options.scaled(256, 32);
    Entry::new(Kind::Random, mib * MIB, false)
}

fn files(
    bench: &mut Bench,
    sampler: &Sampler,
    volume: &Volume,
    all: &[Subject],
) -> Outcome<Vec<Found>> {
    let entry = bytes(bench);
    let source = entry.make(volume.folder())?;
    let warm = Cell {
        section: "copies",
        name: volume.name.clone(),
        destination: volume.folder().join("copy"),
        source,
        bytes: entry.bytes,
        cold: false,
        synced: false,
        tree: false,
        counted: true,
    };
    let new = |subject: &Subject| Found { name: subject.name.clone(), ..Found::default() };
    let mut found: Vec<Found> = all.iter().map(new).collect();
    caches::fill(&warm.source)?;
    for (subject, found) in all.iter().zip(&mut found) {
        found.engines = compete::engines(bench, &warm, subject)?;
    }
    sampled(bench, sampler, &warm, all, &mut found)?;
    let cold = Cell { cold: true, synced: true, ..warm.clone() };
    let cold_rounds = if bench.can_drop { bench.options.rounds } else { 0 };
    for round in 1..=cold_rounds {
        let all = all.iter().zip(&mut found).filter(|(_, found)| found.failure.is_none());
        for (subject, found) in all {
            prepare(bench, &cold, subject)?;
            transfers(bench, volume, found, subject.job(task(&cold)), round)?;
        }
    }
    caches::fill(&warm.source)?;
    let all = all.iter().zip(&mut found).filter(|(_, found)| found.failure.is_none());
    for (subject, found) in all {
        prepare(bench, &warm, subject)?;
        found.cost = process::run(subject.job(task(&warm)))?.ok();
        prepare(bench, &warm, subject)?;
        found.system_calls = bench.counter.count(subject.job(task(&warm)))?.ok();
    }
    Ok(found)
}

/// Samples the copies by the processor.
fn sampled(
    bench: &mut Bench,
    sampler: &Sampler,
    warm: &Cell,
    all: &[Subject],
    found: &mut [Found],
) -> Outcome {
    let mut units_ms: [Samples; 3] = Default::default();
    for round in 1..=bench.options.rounds {
        let Some(first) = all.first() else { return Ok(()) };
        let ready = || prepare(bench, warm, first);
        let ends = (warm.source.as_path(), warm.destination.as_path());
        let one = OneCopy::measure(sampler, bench.options.own_folder(), ends, ready)??;
        for (subject, found) in all.iter().zip(&mut *found) {
            if found.failure.is_some() {
                continue;
            }
            prepare(bench, warm, subject)?;
            let profile = match sampler.profile(subject.job(task(warm)))? {
                Ok(profile) => profile,
                Err(failure) => {
                    found.failure = Some(failure);
                    continue;
                }
            };
            let unit_ns = one.ns(subject, found.engines.as_deref());
            note(bench, &warm.name, found, &profile, unit_ns, round)?;
        }
        let units = [one.page_to_page_ns, one.through_buffer_ns, one.through_small_buffer_ns];
        units_ms.iter_mut().zip(units).for_each(|(all, ns)| all.push(ns / 1e6));
        eprintln!("copies: {}, round {round} of {}", warm.name, bench.options.rounds);
    }
    let [page, buffer, small] = units_ms;
    println!(
        "- one copy of {}: from page to page {page} ms, through 128 KiB {buffer} ms, through 8 KiB {small} ms\n",
        size(warm.bytes)
    );
    Ok(())
}

fn task(cell: &Cell) -> Task<'_> {
    let Cell { source, destination, synced, .. } = cell;
    Task { source, destination, synced: *synced, tree: false }
}

/// Records the samples of one run.
fn note(
    bench: &mut Bench,
    cell: &str,
    found: &mut Found,
    profile: &Profile,
    unit_ns: f64,
    round: usize,
) -> Outcome {
    let copies = profile.copy_ns() / unit_ns;
    found.copies.push(copies);
    found.profile.add(profile);
    let origin = Origin { section: "copies", cell, subject: &found.name, round };
    let (copy_ns, cpu_ns) = (profile.copy_ns(), profile.cpu_ns());
    bench.raw.add(origin, json!({"copies": copies, "copy_ns": copy_ns, "cpu_ns": cpu_ns}))
}

/// Measures the device's reads and writes during one run, divided by the bytes of the file.
fn transfers(
    bench: &mut Bench,
    volume: &Volume,
    found: &mut Found,
    job: Job,
    round: usize,
) -> Outcome {
    let device = volume.device().ok_or("the volume has no device of its own")?;
    let stat = device.setting("stat")?;
    let before = sectors(&stat)?;
    if let Err(failure) = process::run(job)? {
        found.failure = Some(failure);
        return Ok(());
    }
    let after = sectors(&stat)?;
    let bytes = bytes(bench).bytes as f64;
    let part = |before: u64, after: u64| ((after - before) * SECTOR_BYTES) as f64 / bytes;
    let (read, written) = (part(before.0, after.0), part(before.1, after.1));
    found.read.push(read);
    found.written.push(written);
    let origin = Origin { section: "copies", cell: "cold, synced", subject: &found.name, round };
    bench.raw.add(origin, json!({"dma_read": read, "dma_written": written}))
}

/// Returns the sectors that a device has read and written so far.
fn sectors(stat: &Path) -> Outcome<(u64, u64)> {
    parse_sectors(&std::fs::read_to_string(stat)?)
        .ok_or_else(|| format!("{} has an unknown format", stat.display()).into())
}

/// Parses the third and the seventh field.
fn parse_sectors(text: &str) -> Option<(u64, u64)> {
    let fields: Vec<u64> = text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    Some((*fields.get(2)?, *fields.get(6)?))
}

/// Samples the senders, with a receiver that discards without copying. The first sender calibrates.
fn senders(bench: &mut Bench, sampler: &Sampler) -> Outcome<Vec<Found>> {
    let Some(volume) = bench.volume("ext4") else { return Ok(Vec::new()) };
    let entry = bytes(bench);
    let source: PathBuf = entry.make(volume.folder())?;
    caches::fill(&source)?;
    let evermap = bench.options.evermap.clone();
    let senders = sockets::senders(bench, evermap.as_deref());
    let new = |sender: &Sender| Found { name: sender.name(), ..Found::default() };
    let mut found: Vec<Found> = senders.iter().map(new).collect();
    for round in 1..=bench.options.rounds {
        let mut unit_ns = f64::NAN;
        for (index, (sender, found)) in senders.iter().zip(&mut found).enumerate() {
            if found.failure.is_some() {
                continue;
            }
            let profile = with_receiver(bench, sender, &source, |job| sampler.profile(job))?;
            let profile = match profile {
                Ok(profile) => profile,
                Err(failure) => {
                    found.failure = Some(failure);
                    continue;
                }
            };
            if index == 0 {
                unit_ns = profile.copy_ns() / COPIES_BY_BUFFER;
            }
            note(bench, "sender", found, &profile, unit_ns, round)?;
        }
    }
    for (sender, found) in
        senders.iter().zip(&mut found).filter(|(_, found)| found.failure.is_none())
    {
        found.cost = with_receiver(bench, sender, &source, process::run)?.ok();
        let counter = *bench.counter;
        found.system_calls = with_receiver(bench, sender, &source, |job| counter.count(job))?.ok();
    }
    Ok(found)
}

/// Runs a sender with a receiver.
fn with_receiver<T>(
    bench: &Bench,
    sender: &Sender,
    source: &Path,
    run: impl FnOnce(Job) -> Outcome<Result<T, process::Failure>>,
) -> Outcome<Result<T, process::Failure>> {
    ends::check_interrupted()?;
    let discard = bench.options.own_folder().join("discard");
    let receiver = Receiver::Discard { program: &discard, into: None, waking: Waking::Always };
    let waiting = receiver.start("127.0.0.1:0")?;
    let result = run(Job::new(sender.command(source, &waiting.address)))?;
    if result.is_ok() {
        waiting.finish()?;
    }
    Ok(result)
}

fn table(found: &[Found]) -> Table {
    let mut table = Table::new(&[
        "",
        "CPU copies of each byte",
        "share of samples",
        "DMA: read + written",
        "switches, voluntary / involuntary",
        "system calls",
        "CPU, ms",
    ]);
    for found in found {
        if let Some(failure) = &found.failure {
            let why = failure.lines().next().unwrap_or_default();
            table.row(&[found.name.as_str(), "-", why]);
            continue;
        }
        let dma = match found.read.count() {
            0 => "-".to_string(),
            _ => format!("{} + {}", spread(&found.read), spread(&found.written)),
        };
        let cost = found.cost.unwrap_or_default();
        let calls = found.system_calls.map_or("?".to_string(), |calls| calls.to_string());
        table.row(&[
            found.name.clone(),
            format!("**{:.0}**: {}", found.copies.median(), spread(&found.copies)),
            found.profile.evidence(),
            dma,
            format!("{} / {}", cost.voluntary_switches, cost.involuntary_switches),
            calls,
            format!("{:.1}", cost.cpu_ms()),
        ]);
    }
    table
}

/// Formats median, minimum and maximum with two decimals.
fn spread(samples: &Samples) -> String {
    format!("{:.2} ({:.2}-{:.2})", samples.median(), samples.min(), samples.max())
}

fn draw(bench: &Bench, found: &[(String, Found)]) -> Outcome {
    let measured = found.iter().filter(|(_, found)| found.failure.is_none());
    let median = |samples: &Samples| Some(samples.median()).filter(|median| median.is_finite());
    let groups = measured.map(|(name, found)| {
        (name.clone(), vec![median(&found.copies), median(&found.read), median(&found.written)])
    });
    let bars = Bars {
        title: "Copies of each byte".to_string(),
        meaning: "by the processor: sampled, warm; by DMA: what the device read and wrote, cold and synced".to_string(),
        series: ["by the processor", "DMA, read", "DMA, written"].map(String::from).to_vec(),
        groups: groups.collect(),
        ratios: false,
    };
    bench.draw("transfer-copies.svg", &bars.svg()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_are_the_third_and_the_seventh_field() {
        let text =
            "     100        0     2048       12      200        5     4096       30 0 20 42\n";
        assert_eq!(parse_sectors(text), Some((2048, 4096)));
        assert_eq!(parse_sectors("1 2 3"), None);
    }
}
