//! Measures the influence of the medium. Repeats figures 10 and 11 of "Improving I/O Performance in
//! Smart TVs" (Lee, Hwang and Won): the time from the start of the program to the displayed page,
//! split by activity, for each page and medium; in ms and relative to the cold time.
//!
//! Pages, their resources and the store are on the medium; programs, libraries and fonts are in the
//! page cache. Cold and warm starts take turns, each in a new process on a freshly prepared medium.
//! The parts of a bar come from one process: the one with the median time from exec to the last
//! pixel. A page fault's read time is in the part that touches the memory.

use std::fmt::Write;

use crate::Bench;
use crate::chart::{Bar, Chart, Column};
use crate::command::{Evermap, PageStore, Painted, Start};
use crate::media::{ColdDisk, Medium, Memory, SlowDisk, WarmDisk};
use crate::pages::{self, Without};
use crate::ratios::Ratios;
use crate::sections::evermap;
use harness::Outcome;
use harness::samples::{figure, head, row};

const ROUNDS: usize = 5;
const STARTS: [(&str, Start); 2] = [("cold", Start::Cold), ("warm", Start::Warm)];
pub const PARTS: [&str; 6] = ["disk", "parse", "style, layout", "record", "paint", "start"];

type Make = fn(&Bench) -> Outcome<Box<dyn Medium>>;

const MEDIA: [(&str, Make); 4] = [
    ("memory", |_| Ok(Box::new(Memory::new()?))),
    ("disk, in the page cache", |_| Ok(Box::new(WarmDisk::new()?))),
    ("disk, cold", |_| Ok(Box::new(ColdDisk::new()?))),
    ("slow disk", |bench| Ok(Box::new(SlowDisk::new(bench.can_mount)?))),
];

pub fn report(bench: &mut Bench) -> Outcome {
    let Some(evermap) = evermap(bench) else { return Ok(()) };
    let rounds = bench.options.rounds_or(ROUNDS, 1);
    println!(
        "{rounds} rounds in turns; ms of the process with the median time from exec to the last pixel.\n"
    );
    let mut columns = Vec::new();
    for (name, make) in MEDIA.into_iter().filter(|(name, _)| bench.options.selects("media", name)) {
        match make(bench) {
            Ok(mut medium) => columns.push(measure(bench, evermap, &mut *medium, rounds)?),
            Err(reason) => {
                harness::ends::check_interrupted()?;
                println!("**Skipped: {name}** ({reason})\n");
            }
        }
    }
    if columns.is_empty() {
        return Err("no medium is available".into());
    }
    draw(bench, columns)
}

fn measure(
    bench: &Bench,
    evermap: &Evermap,
    medium: &mut dyn Medium,
    rounds: usize,
) -> Outcome<Column> {
    println!("### {}\n", medium.name());
    let copies = pages::copy(&bench.own.pages, &medium.folder().join("pages"), Without::Nothing)?;
    let page_store = PageStore::new(evermap, medium.folder())?;
    for page in &copies {
        page_store.keep(page)?;
    }
    // Writes all files to the medium.
    rustix::fs::sync();
    let titles: Vec<&str> =
        ["page", "from", "whole"].into_iter().chain(PARTS).chain(["KiB read", "of cold"]).collect();
    head(&titles);
    let mut ratios = Ratios::default();
    let mut bars = Vec::new();
    let mut laid_out = Vec::new();
    for page in &copies {
        let mut taken: [Vec<Bar>; 2] = Default::default();
        for _ in 0..rounds {
            for ((_, start), taken) in STARTS.into_iter().zip(&mut taken) {
                medium.prepare()?;
                let painted = page_store.time(page, start)?;
                taken.push(bar(&painted));
            }
        }
        let pair = taken.map(middle);
        // The first call lets the viewer observe how long loading the stored page takes on this
        // medium.
        medium.prepare()?;
        page_store.shows_kept(page)?;
        medium.prepare()?;
        if !page_store.shows_kept(page)? {
            laid_out.push(page.name.clone());
        }
        for ((name, _), bar) in STARTS.iter().zip(&pair) {
            let mut cells = vec![page.name.clone(), name.to_string(), figure(bar.whole())];
            cells.extend(bar.parts.iter().map(|ms| figure(*ms)));
            cells.push((bar.read_bytes >> 10).to_string());
            cells.push(figure(bar.whole() / pair[0].whole()));
            row(&cells);
        }
        ratios.push(&page.name, pair[0].whole() / pair[1].whole());
        bars.push(pair.to_vec());
    }
    println!("\n- cold / warm: {}", ratios.summary());
    match laid_out.as_slice() {
        [] => println!("- the viewer keeps using the stored pages\n"),
        pages => println!("- the viewer then lays out again: {}\n", pages.join(", ")),
    }
    Ok(Column { title: medium.name(), bars })
}

/// Splits a process's time into parts. The remainder is the start and the search for fonts.
fn bar(painted: &Painted) -> Bar {
    let Painted { shown, ended, report } = painted;
    let known =
        [report.disk_ms, report.parse_ms, report.layout_ms, report.record_ms, report.paint_ms];
    let whole = shown.as_secs_f64() * 1e3;
    let rest = (whole - known.iter().sum::<f64>()).max(0.0);
    let [disk, parse, layout, record, paint] = known;
    let parts = [disk, parse, layout, record, paint, rest];
    Bar { parts, read_bytes: ended.cost.read_bytes }
}

/// Returns the median bar; of an even number, the slower one of the middle two.
fn middle(mut bars: Vec<Bar>) -> Bar {
    bars.sort_by(|a, b| a.whole().total_cmp(&b.whole()));
    let middle = bars.len() / 2;
    bars.swap_remove(middle)
}

/// Writes the charts and their data.
fn draw(bench: &Bench, columns: Vec<Column>) -> Outcome {
    let folder = &bench.options.images;
    std::fs::create_dir_all(folder)?;
    let pages: Vec<String> = bench.own.pages.iter().map(|page| page.name.clone()).collect();
    let mut table =
        format!("medium,page,from,{}\n", PARTS.map(|part| part.replace(", ", "-")).join(","));
    for column in &columns {
        for (page, pair) in pages.iter().zip(&column.bars) {
            for ((start, _), bar) in STARTS.iter().zip(pair) {
                let parts = bar.parts.map(|ms| format!("{ms:.3}")).join(",");
                // Writing to a string cannot fail.
                let _ = writeln!(table, "\"{}\",{page},{start},{parts}", column.title);
            }
        }
    }
    std::fs::write(folder.join("viewer-media.csv"), table)?;
    let mut chart = Chart {
        title: "From exec to the last pixel, by page and medium".to_string(),
        order: "upper bar: cold; lower bar: warm".to_string(),
        parts: PARTS.map(str::to_string).to_vec(),
        rows: pages,
        columns,
        of_first: false,
    };
    for (file, title, of_first) in [
        ("figure-10.svg", "Time from the start to the displayed page, ms", false),
        ("figure-11.svg", "Time from the start to the displayed page, % of the cold time", true),
    ] {
        chart.title = title.to_string();
        chart.of_first = of_first;
        let path = folder.join(file);
        std::fs::write(&path, chart.svg()?)?;
        println!("Drawn: `{}`", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(whole: f64) -> Bar {
        Bar { parts: [whole, 0.0, 0.0, 0.0, 0.0, 0.0], read_bytes: 0 }
    }

    #[test]
    fn the_parts_of_a_bar_come_from_one_process() {
        let bars = vec![of(5.0), of(1.0), of(3.0), of(2.0), of(4.0)];
        assert_eq!(middle(bars).whole(), 3.0);
    }
}
