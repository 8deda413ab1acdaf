//! Repeats the table of the study that introduced takeover (*Application Init Optimizations*, CELF
//! 2005) in its form, with the published figures beside today's.
//!
//! The study started its own application on a 133 MHz SH3 with a CompactFlash card and measured the
//! whole start. This section loads a file and writes to every page of it. No kernel has the study's
//! takeover; the measured methods have the same effect. So only the order of the rows can be
//! compared, not their figures.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Instant;

use harness::bench::skip_on_error;
use harness::raw::Origin;
use harness::samples::Samples;
use harness::table::Table;
use harness::units::{GIB, grouped, size};
use harness::volumes::{Packed, Volume};
use harness::{Outcome, caches, ends, memory, volumes};

use super::systems;
use crate::bench::Bench;
use crate::compete::{Cell, Measured, Ready};
use crate::subjects::{FINISH, MAP, READ, Subject, method_name};
use crate::work::{Order, Work};

/// The study's number of runs.
const ROUNDS: usize = 3;

/// Published figures of a row: the average, three runs, and the difference to the first row.
type Published = ([f64; 4], Option<f64>);

/// A row of the table.
struct Row {
    number: &'static str,
    method: String,
    media: &'static str,
    file_system: String,
    published: Option<Published>,
    /// Seconds of each run.
    runs: Vec<f64>,
    faults: Samples,
}

impl Row {
    fn new(
        (number, method): (&'static str, &str),
        (media, file_system): (&'static str, &str),
        published: Option<Published>,
    ) -> Row {
        let (method, file_system) = (method.to_string(), file_system.to_string());
        let (runs, faults) = (Vec::new(), Samples::new());
        Row { number, method, media, file_system, published, runs, faults }
    }

    fn average(&self) -> f64 {
        self.runs.iter().sum::<f64>() / self.runs.len() as f64
    }

    fn push(&mut self, round: usize, seconds: f64, faults: Option<f64>) {
        if round > 0 {
            self.runs.push(seconds);
            faults.into_iter().for_each(|faults| self.faults.push(faults));
        }
    }
}

/// Row that is one load.
struct Loaded {
    row: Row,
    subject: Subject,
    cell: Cell,
    ready: Ready,
}

pub fn report(bench: &mut Bench) -> Outcome {
    let bytes = bench.options.sizes_bytes.first().copied().unwrap_or(GIB);
    let content = systems::content(bench, bytes)?;
    println!(
        "{}, half of it compressible; loaded and all of it written, in order; cold. Seconds until all pages are written.\n\n\
                 - 1 and 2 are `malloc` and `read`, and a private mapping, as in the study.\n\
                 - 3 is direct reads into private huge pages (`{}`): the whole file is read before it is used. 3a reads pages when they are touched, and \
                 ahead of that (`{}`), as the study's mapping did.\n\
                 - 4 and 5: squashfs has no direct reads; the method that evermap chooses there stands for takeover.\n\
                 - 5 is the image in memory (a file of tmpfs as a block device): copied there from the disk, mounted, and loaded.\n",
        size(bytes),
        method_name(evermap_load::Method::Takeover),
        method_name(evermap_load::Method::TakeoverOnDemand)
    );
    let disk = volumes::kind(&content).unwrap_or("?");
    if disk == "tmpfs" {
        println!("**Skipped**: the folder to measure is in memory, where nothing is cold.\n");
        return Ok(());
    }
    let packed = skip_on_error("squashfs", bench.volumes.packed(Packed::SquashfsZstd, &content));
    let image =
        skip_on_error("squashfs in memory", bench.volumes.image(Packed::SquashfsZstd, &content));
    let mut rows = on_disk(bench, systems::file_in(&content), bytes, disk)?;
    if let Some(volume) = packed.as_ref().filter(|_| bench.can_drop) {
        rows.push(packed_row(bench, volume, bytes)?);
    }
    let parts = image.filter(|_| bench.can_drop).zip(bench.volume("tmpfs"));
    let mut memory = parts.map(|(image, volume)| InMemory::new(image, volume, bytes));
    let first = bench.options.scaled(0, 1);
    for round in first..=ROUNDS {
        for turn in 0..rows.len() {
            let index = (turn + round) % rows.len();
            step(bench, &mut rows[index], round)?;
        }
        if let Some(in_memory) = &mut memory
            && let Err(error) = in_memory.step(bench, round)
        {
            ends::check_interrupted()?;
            skip_on_error::<()>("squashfs in memory", Err(error));
            memory = None;
        }
    }
    std::fs::remove_dir_all(content)?;
    let mut all: Vec<Row> = rows.into_iter().map(|loaded| loaded.row).collect();
    all.extend(memory.into_iter().flat_map(|memory| memory.rows));
    print(&all);
    Ok(())
}

fn on_disk(bench: &Bench, file: PathBuf, bytes: u64, disk: &str) -> Outcome<Vec<Loaded>> {
    let method = |method| method_name(method);
    let rows: [(&str, &str, String, Option<Published>); 4] = [
        ("1", "read", READ.to_string(), Some(([4.420, 4.418, 4.420, 4.421], None))),
        ("2", "mmap", MAP.to_string(), Some(([3.995, 3.995, 3.995, 3.996], Some(-0.424)))),
        (
            "3",
            "takeover",
            method(evermap_load::Method::Takeover),
            Some(([3.959, 3.959, 3.958, 3.966], Some(-0.461))),
        ),
        ("3a", "takeover on demand", method(evermap_load::Method::TakeoverOnDemand), None),
    ];
    let loaded = rows.into_iter().map(|(number, name, subject, published)| {
        let row = Row::new((number, name), ("disk", disk), published);
        load(bench, row, &subject, file.clone(), (bytes, false))
    });
    loaded.collect()
}

fn packed_row(bench: &Bench, volume: &Volume, bytes: u64) -> Outcome<Loaded> {
    let published = Some(([4.002, 4.000, 4.000, 4.007], Some(-0.417)));
    let row = Row::new(("4", "takeover"), ("disk", "squashfs"), published);
    load(bench, row, FINISH, systems::file_in(volume.folder()), (bytes, true))
}

fn load(
    bench: &Bench,
    row: Row,
    subject: &str,
    file: PathBuf,
    (bytes, is_packed): (u64, bool),
) -> Outcome<Loaded> {
    let cell = Cell {
        section: "study",
        name: format!("{}, {}", row.media, row.file_system),
        file,
        bytes,
        is_cold: true,
        work: Work::written(100, Order::Sequential),
        is_packed,
    };
    let ready = Ready::new(bench, &cell)?;
    Ok(Loaded { row, subject: Subject::native(subject), cell, ready })
}

fn step(bench: &mut Bench, loaded: &mut Loaded, round: usize) -> Outcome {
    let Loaded { row, subject, cell, ready } = loaded;
    match ready.step(bench, cell, subject)? {
        Ok(measured) => {
            let subject = &subject.name;
            let origin = Origin { section: "study", cell: &cell.name, subject, round };
            bench.raw.add(origin, &measured)?;
            row.push(round, measured.taken.finished_s, Some(measured.faults()));
            if let Some(method) = measured.taken.method.filter(|_| row.number == "4") {
                row.method = format!("takeover (by {method})");
            }
        }
        Err(failure) => println!("- row {}: {failure}", row.number),
    }
    Ok(())
}

/// Row 5 and its parts.
struct InMemory {
    image: File,
    volume: Volume,
    bytes: u64,
    /// Total, copy, mount and load.
    rows: [Row; 4],
}

impl InMemory {
    fn new(image: File, volume: Volume, bytes: u64) -> InMemory {
        let row = |number, method, published| {
            Row::new((number, method), ("memory", "squashfs"), Some(published))
        };
        let rows = [
            row("5", "takeover (total)", ([4.588, 4.579, 4.590, 4.595], Some(0.168))),
            row("", "dd (disk -> memory)", ([1.212, 1.209, 1.209, 1.217], None)),
            row("", "mount", ([0.041, 0.040, 0.041, 0.041], None)),
            row("", "takeover", ([3.336, 3.330, 3.340, 3.337], None)),
        ];
        InMemory { image, volume, bytes, rows }
    }

    /// Copies, mounts and loads the image, then releases it.
    fn step(&mut self, bench: &mut Bench, round: usize) -> Outcome {
        // The image is unlinked, so this is its only path.
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.image.as_raw_fd()));
        caches::drop_file(&path)?;
        if bench.options.warm_memory {
            memory::warm(2 * self.image.metadata()?.len())?;
        }
        let start = Instant::now();
        let mut copy = tempfile::tempfile_in(self.volume.folder())?;
        std::io::copy(&mut File::open(path)?, &mut copy)?;
        let copied_s = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let mounted = bench.volumes.on_image("squashfs in memory", Packed::SquashfsZstd, copy)?;
        let mounted_s = start.elapsed().as_secs_f64();
        let row = Row::new(("5", ""), ("memory", "squashfs"), None);
        let file = systems::file_in(mounted.folder());
        let loaded = load(bench, row, FINISH, file, (self.bytes, true))?;
        let measured: Measured = loaded.ready.step(bench, &loaded.cell, &loaded.subject)??;
        let origin = Origin { section: "study", cell: &loaded.cell.name, subject: FINISH, round };
        bench.raw.add(origin, &measured)?;
        let loaded_s = measured.taken.finished_s;
        let all = [copied_s + mounted_s + loaded_s, copied_s, mounted_s, loaded_s];
        for (row, seconds) in self.rows.iter_mut().zip(all) {
            row.push(round, seconds, None);
        }
        Ok(())
    }
}

fn print(rows: &[Row]) {
    let first = rows.first().map_or(f64::NAN, Row::average);
    let (today, then) = (["Ave.", "1st", "2nd", "3rd", "Diff"], ["2005: Ave.", "Diff"]);
    let mut head = vec!["No.", "Method", "Media", "FS"];
    head.extend(today.iter().chain(&then));
    let mut table = Table::new(&head);
    for row in rows.iter().filter(|row| !row.runs.is_empty()) {
        let mut cells = vec![
            row.number.to_string(),
            row.method.clone(),
            row.media.to_string(),
            row.file_system.clone(),
            seconds(row.average()),
        ];
        cells.extend(
            (0..ROUNDS).map(|run| row.runs.get(run).copied().map_or(String::new(), seconds)),
        );
        // The parts of row 5 are not compared with the first row.
        let differs = !matches!(row.number, "" | "1");
        cells.push(if differs { signed(row.average() - first) } else { "-".to_string() });
        match row.published {
            Some((runs, difference)) => {
                cells.push(format!("{:.3}", runs[0]));
                cells.push(difference.map_or("-".to_string(), |by| format!("{by:+.3}")));
            }
            None => cells.extend(["-"; 2].map(str::to_string)),
        }
        table.row(&cells);
    }
    println!("{table}");
    let faults = |number: &str| {
        let row = rows.iter().find(|row| row.number == number && row.faults.count() > 0);
        row.map_or("?".to_string(), |row| grouped(row.faults.mean()))
    };
    println!(
        "Page faults, mmap -> takeover: {} -> {} ({} on demand); in 2005: 496 -> 317.\n",
        faults("2"),
        faults("3"),
        faults("3a")
    );
}

fn seconds(value: f64) -> String {
    format!("{value:.4}")
}

fn signed(value: f64) -> String {
    format!("{value:+.4}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_zero_is_not_in_the_average() {
        let mut row = Row::new(("1", "read"), ("disk", "ext4"), None);
        for (round, seconds) in [9.0, 1.0, 2.0, 3.0].into_iter().enumerate() {
            row.push(round, seconds, Some(7.0));
        }
        assert_eq!((row.average(), row.runs.len(), row.faults.mean()), (2.0, 3, 7.0));
        assert_eq!((seconds(0.49649), signed(-0.1)), ("0.4965".into(), "-0.1000".into()));
    }
}
