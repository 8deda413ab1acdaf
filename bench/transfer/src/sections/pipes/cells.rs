//! Cells that show when more pipes help, and when they do not.

use std::path::PathBuf;

use harness::Outcome;
use harness::bench::skip_on_error;
use harness::settings::Setting;
use harness::units::{GIB, KIB, MIB, size};
use harness::volumes::{Packed, Volume};

use super::Row;
use crate::bench::Bench;
use crate::compete::{Cell, compete};
use crate::corpus::{Entry, Kind};
use crate::subjects::Subject;

const READ_AHEAD: &str = "queue/read_ahead_kb";

/// Measures all cells.
pub fn measure(bench: &mut Bench, ways: &[Subject]) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    warm(bench, ways, &mut rows)?;
    if bench.can_drop {
        waiting(bench, ways, &mut rows)?;
        packed(bench, ways, &mut rows)?;
    } else {
        println!("**Skipped: cold cells**: emptying the page cache needs root\n");
    }
    Ok(rows)
}

/// Returns a cell of this section.
pub fn cell(name: &str, source: PathBuf, to: &Volume, bytes: u64, cold: bool) -> Cell {
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

/// Measures warm copies, which wait only for the destination.
fn warm(bench: &mut Bench, ways: &[Subject], rows: &mut Vec<Row>) -> Outcome {
    let (Some(volume), memory) = (bench.volume("ext4"), bench.volume("tmpfs")) else {
        return Ok(());
    };
    let same = [4 * KIB, 64 * MIB, GIB].map(|bytes| (bytes, "same file system", Some(&volume)));
    let across = (64 * MIB, "to tmpfs", memory.as_ref());
    for (bytes, how, to) in same.into_iter().chain([across]) {
        let Some(to) = to else { continue };
        let entry = Entry::new(Kind::Random, bytes, bench.options.quick);
        let source = entry.make(volume.folder())?;
        let name = format!("{}, {how}, warm", size(entry.bytes));
        let standings = compete(bench, &cell(&name, source, to, entry.bytes, false), ways)?;
        rows.push(Row::of(&standings, ways, &name));
    }
    Ok(())
}

/// Measures cold copies, from a disk with default, small and no read-ahead.
fn waiting(bench: &mut Bench, ways: &[Subject], rows: &mut Vec<Row>) -> Outcome {
    let Some(source_volume) = skip_on_error("xfs", bench.volumes.on_loop("xfs-source", "xfs"))
    else {
        return Ok(());
    };
    let Some(memory) = bench.volume("tmpfs") else { return Ok(()) };
    let entry = Entry::new(Kind::Random, 64 * MIB, bench.options.quick);
    let source = entry.make(source_volume.folder())?;
    let device = source_volume.device().ok_or("the volume has no device of its own")?;
    for kib in [None, Some("128"), Some("0")] {
        let read_ahead = Setting::keep(&mut bench.guard, device.setting(READ_AHEAD)?)?;
        let name = match kib {
            None => {
                format!("xfs to tmpfs, cold, read-ahead {} KiB, the default", read_ahead.before())
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

/// Measures cold copies from file systems that decompress.
fn packed(bench: &mut Bench, ways: &[Subject], rows: &mut Vec<Row>) -> Outcome {
    let Some(memory) = bench.volume("tmpfs") else { return Ok(()) };
    let entry = Entry::new(Kind::Text, 64 * MIB, bench.options.quick);
    let content = bench.folder("content")?;
    entry.make(&content)?;
    for how in [Some(Packed::SquashfsZstd), Some(Packed::ErofsLz4hc), None] {
        let (name, volume) = match how {
            Some(how) => (how.name(), bench.volumes.packed(how, &content)),
            None => ("btrfs zstd", bench.volumes.compressing()),
        };
        let Some(volume) = skip_on_error(name, volume) else { continue };
        if how.is_none() {
            entry.make(volume.folder())?;
        }
        let source = volume.folder().join(entry.file_name());
        let name = format!("{name} to tmpfs, cold");
        let cell = cell(&name, source, &memory, entry.bytes, true);
        let standings = compete(bench, &cell, ways)?;
        rows.push(Row::of(&standings, ways, &name));
    }
    std::fs::remove_dir_all(content)?;
    Ok(())
}
