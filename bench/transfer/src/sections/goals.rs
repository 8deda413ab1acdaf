//! Evaluates the goals, cell by cell. The figures are measured here together with their peers, or
//! come from `files` and `sockets`.

use std::path::{Path, PathBuf};

use harness::Outcome;
use harness::bench::skip_on_error;
use harness::goals::Goal;
use harness::units::{GIB, MIB};
use harness::volumes::Volume;

use crate::bench::Bench;
use crate::compete::{Cell, Measured, Standings, compete};
use crate::corpus::{self, Entry, Kind};
use crate::subjects::{POLICY, Subject};

use super::{files, sockets};

const CP: &str = "cp";
const TREE_FILES: u64 = 10_000;

pub fn report(bench: &mut Bench) -> Outcome {
    let Some(program) = bench.evermap() else { return Ok(()) };
    let evermap = Subject::evermap(&program, None, None);
    if let Some(volume) = bench.volume("ext4") {
        warm(bench, &evermap, &volume)?;
        cold_and_synced(bench, &evermap, &volume)?;
        if let Some(volume) = skip_on_error("ext4 for small files", bench.volumes.for_small_files())
        {
            tree(bench, &evermap, &volume)?;
        }
        sockets::goals(bench, &program, &volume)?;
    }
    for name in ["ext4", "xfs", "btrfs", "tmpfs"] {
        if !bench.options.selects("file-systems", name) {
            continue;
        }
        let Some(volume) = bench.volume(name) else { continue };
        sparse(bench, &evermap, &volume)?;
        if matches!(name, "xfs" | "btrfs") {
            reflink(bench, &evermap, &volume)?;
        }
    }
    files::goals(bench);
    Ok(())
}

fn cell(name: &str, volume: &Volume, source: PathBuf, bytes: u64) -> Cell {
    Cell {
        section: "goals",
        name: format!("{}, {name}", volume.name),
        source,
        destination: volume.folder().join("copy"),
        bytes,
        cold: false,
        synced: false,
        tree: false,
        counted: false,
    }
}

/// Returns Evermap and these peers.
fn with(bench: &Bench, evermap: &Subject, peers: &[&str]) -> Vec<Subject> {
    let peers = bench.own.peers.iter().filter(|peer| peers.contains(&peer.name.as_str()));
    std::iter::once(evermap.clone()).chain(peers.cloned()).collect()
}

/// Judges the ratio of Evermap and one peer.
fn judge(
    bench: &mut Bench,
    what: &str,
    standings: &Standings,
    (one, other): (&str, &str),
    goal: Goal,
    of: impl Fn(&Measured) -> f64,
) {
    let peer = if one == POLICY { other } else { one };
    match standings.ratios(one, other, of) {
        Some(ratios) => {
            bench.goals.judge(what, peer, &ratios, goal);
        }
        None => {
            let failed = standings.results.iter().find_map(|result| result.steps.as_ref().err());
            let why = failed.map_or("it is not installed", |failure| failure.as_str()).to_string();
            bench.goals.unmeasured(what, goal, &why);
        }
    }
}

fn warm(bench: &mut Bench, evermap: &Subject, volume: &Volume) -> Outcome {
    let entry = Entry::new(Kind::Random, GIB, bench.options.quick);
    let source = entry.make(volume.folder())?;
    let cell = cell("warm 1 GiB", volume, source, entry.bytes);
    let all = compete(bench, &cell, &with(bench, evermap, &[CP]))?;
    let what = format!("{}, warm, same file system: cp / evermap", entry.name());
    judge(bench, &what, &all, (CP, POLICY), Goal::AtLeast(1.15), |step| step.cost.wall_ms());
    Ok(())
}

fn cold_and_synced(bench: &mut Bench, evermap: &Subject, volume: &Volume) -> Outcome {
    let entry = Entry::new(Kind::Random, 64 * MIB, bench.options.quick);
    let (faster, cheaper) = (Goal::AtLeast(1.15), Goal::AtMost(0.25));
    let time = format!("{}, cold and synced: cp / evermap", entry.name());
    let cpu = format!("{}, cold and synced: CPU, evermap / cp", entry.name());
    if !bench.can_drop {
        bench.goals.unmeasured(&time, faster, "emptying the page cache needs root");
        bench.goals.unmeasured(&cpu, cheaper, "emptying the page cache needs root");
        return Ok(());
    }
    let source = entry.make(volume.folder())?;
    let cell =
        Cell { cold: true, synced: true, ..cell("cold 64 MiB", volume, source, entry.bytes) };
    let all = compete(bench, &cell, &with(bench, evermap, &[CP]))?;
    judge(bench, &time, &all, (CP, POLICY), faster, |step| step.cost.wall_ms());
    judge(bench, &cpu, &all, (POLICY, CP), cheaper, |step| step.cost.cpu_ms());
    Ok(())
}

fn tree(bench: &mut Bench, evermap: &Subject, volume: &Volume) -> Outcome {
    let files = bench.options.scaled(TREE_FILES, TREE_FILES / 10);
    let source = volume.folder().join("tree");
    corpus::tree(&source, files)?;
    let name = format!("tree of {files} files of 4 KiB");
    let cell = Cell { tree: true, ..cell(&name, volume, source, files * 4096) };
    let subjects = with(bench, evermap, &[CP, "rsync -W", "xcp"]);
    let all = compete(bench, &cell, &subjects)?;
    let what = format!("{name}: cp -a / evermap");
    judge(bench, &what, &all, (CP, POLICY), Goal::AtLeast(1.5), |step| step.cost.wall_ms());
    for peer in ["rsync -W", "xcp"] {
        let what = format!("{name}: evermap / {peer}");
        let limit = Goal::AtMost(files::SLOWER_MOST);
        judge(bench, &what, &all, (POLICY, peer), limit, |step| step.cost.wall_ms());
    }
    Ok(())
}

/// Judges that only data is copied: the copy of a sparse file allocates no more than its source.
fn sparse(bench: &mut Bench, evermap: &Subject, volume: &Volume) -> Outcome {
    let entry = Entry::new(Kind::Sparse, 64 * MIB, bench.options.quick);
    let source = entry.make(volume.folder())?;
    let own_kib = allocated_kib(&source)?;
    let cell = cell("sparse", volume, source, entry.bytes);
    let std_copy = "std::fs::copy";
    let all = compete(bench, &cell, &with(bench, evermap, &[CP, std_copy]))?;
    let what = format!("{} on {}: KiB allocated", entry.name(), volume.name);
    let goal = Goal::AtMost(own_kib);
    match all.result(POLICY) {
        Some(result) => {
            let kib = result.samples(|step| step.allocated_bytes as f64 / 1024.0);
            let others = [CP, std_copy].into_iter().filter_map(|name| {
                let bytes = all.result(name)?.samples(|step| step.allocated_bytes as f64).median();
                Some(format!("{name}: {:.0}", bytes / 1024.0))
            });
            let others = others.collect::<Vec<_>>().join(", ");
            bench.goals.judge(&what, &others, &kib, goal);
        }
        None => bench.goals.unmeasured(&what, goal, "evermap failed to copy it"),
    }
    Ok(())
}

fn allocated_kib(path: &Path) -> Outcome<f64> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata(path)?.blocks() as f64 / 2.0)
}

fn reflink(bench: &mut Bench, evermap: &Subject, volume: &Volume) -> Outcome {
    let entry = Entry::new(Kind::Random, GIB, bench.options.quick);
    let source = entry.make(volume.folder())?;
    let cell = cell("reflink", volume, source, entry.bytes);
    let all = compete(bench, &cell, &with(bench, evermap, &[CP]))?;
    let what = format!("{} on {}, shared: evermap / cp", entry.name(), volume.name);
    let limit = Goal::AtMost(files::SLOWER_MOST);
    judge(bench, &what, &all, (POLICY, CP), limit, |step| step.cost.wall_ms());
    Ok(())
}
