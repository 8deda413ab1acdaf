//! Cells that say when more pipes help, and when not.

use std::path::PathBuf;

use common::Outcome;
use common::bench::said;
use common::grounds::{Ground, Packed};
use common::settings::Setting;
use common::units::{GIB, KIB, MIB, size};

use super::Row;
use crate::bench::Bench;
use crate::compete::{Cell, compete};
use crate::corpus::{Entry, Kind};
use crate::subjects::Subject;

const READ_AHEAD: &str = "queue/read_ahead_kb";

/// All of them.
pub fn measure(bench: &mut Bench, ways: &[Subject]) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    warm(bench, ways, &mut rows)?;
    if bench.can_drop {
        waiting(bench, ways, &mut rows)?;
        packed(bench, ways, &mut rows)?;
    } else {
        println!("**Skipped: cold cells**: emptying the page cache takes root\n");
    }
    Ok(rows)
}

/// One of this section's.
pub fn cell(name: &str, source: PathBuf, to: &Ground, bytes: u64, cold: bool) -> Cell {
    Cell {
        section: "pipes",
        name: name.to_string(),
        source,
        destination: to.folder().join("copy"),
        bytes,
        cold,
        synced: false,
        tree: false,
        counted: false,
    }
}

/// Warm: nothing waits but for the destination.
fn warm(bench: &mut Bench, ways: &[Subject], rows: &mut Vec<Row>) -> Outcome {
    let (Some(ground), memory) = (bench.ground("ext4"), bench.ground("tmpfs")) else {
        return Ok(());
    };
    let same = [4 * KIB, 64 * MIB, GIB].map(|bytes| (bytes, "same file system", Some(&ground)));
    let across = (64 * MIB, "to tmpfs", memory.as_ref());
    for (bytes, how, to) in same.into_iter().chain([across]) {
        let Some(to) = to else { continue };
        let entry = Entry::new(Kind::Random, bytes, bench.options.quick);
        let source = entry.make(ground.folder())?;
        let name = format!("{}, {how}, warm", size(entry.bytes));
        let standings = compete(bench, &cell(&name, source, to, entry.bytes, false), ways)?;
        rows.push(Row::of(&standings, ways, &name));
    }
    Ok(())
}

/// Cold, from a disk that reads ahead by as much as usual, or less, or not at all.
fn waiting(bench: &mut Bench, ways: &[Subject], rows: &mut Vec<Row>) -> Outcome {
    let Some(source_ground) = said("xfs", bench.grounds.on_loop("xfs-source", "xfs")) else {
        return Ok(());
    };
    let Some(memory) = bench.ground("tmpfs") else { return Ok(()) };
    let entry = Entry::new(Kind::Random, 64 * MIB, bench.options.quick);
    let source = entry.make(source_ground.folder())?;
    let device = source_ground.device().ok_or("a file system on a loop device is needed")?;
    for kib in [None, Some("128"), Some("0")] {
        let read_ahead = Setting::keep(&mut bench.guard, device.setting(READ_AHEAD)?)?;
        let name = match kib {
            None => {
                format!("xfs to tmpfs, cold, read-ahead {} KiB, as it was", read_ahead.before())
            }
            Some(kib) => {
                read_ahead.set(kib)?;
                format!("xfs to tmpfs, cold, read-ahead {kib} KiB")
            }
        };
        let cell = cell(&name, source.clone(), &memory, entry.bytes, true);
        let standings = compete(bench, &cell, ways)?;
        rows.push(Row::of(&standings, ways, &name));
    }
    Ok(())
}

/// Cold, from file systems that unpack what they read.
fn packed(bench: &mut Bench, ways: &[Subject], rows: &mut Vec<Row>) -> Outcome {
    let Some(memory) = bench.ground("tmpfs") else { return Ok(()) };
    let entry = Entry::new(Kind::Text, 64 * MIB, bench.options.quick);
    let content = bench.folder("content")?;
    entry.make(&content)?;
    for how in [Some(Packed::SquashfsZstd), Some(Packed::ErofsLz4hc), None] {
        let (name, ground) = match how {
            Some(how) => (how.name(), bench.grounds.packed(how, &content)),
            None => ("btrfs zstd", bench.grounds.compressing()),
        };
        let Some(ground) = said(name, ground) else { continue };
        if how.is_none() {
            entry.make(ground.folder())?;
        }
        let source = ground.folder().join(entry.file_name());
        let name = format!("{name} to tmpfs, cold");
        let cell = cell(&name, source, &memory, entry.bytes, true);
        let standings = compete(bench, &cell, ways)?;
        rows.push(Row::of(&standings, ways, &name));
    }
    std::fs::remove_dir_all(content)?;
    Ok(())
}
