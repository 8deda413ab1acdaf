//! Measures the time until a page is on the screen, for the viewer and other browsers.
//!
//! All browsers get the same copies of the pages, without scripts, their replacements (`noscript`)
//! and redirects, because programs differ in which ones they follow. New processes run in turns.
//! There are two kinds of work, compared separately:
//!
//! - a window on a screen (`screen.rs`): from exec to the last change of pixels;
//! - a picture file: from exec to exit.
//!
//! The windows' work is not equal: Dillo ignores most CSS, NetSurf some. `--pictures` keeps their
//! last frames.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::Bench;
use crate::chart::{Bar, Chart, Column};
use crate::command::{Evermap, HEIGHT, PageStore, Start, WIDTH};
use crate::pages::{self, Page, Without};
use crate::peers::{PEERS, Peer, Shows, picture};
use crate::ratios::Ratios;
use crate::screen::{self, Screen};
use harness::Outcome;
use harness::files::working;
use harness::process::Cost;
use harness::running::{self, Running};
use harness::samples::{Samples, figure, head, row};

const ROUNDS: usize = 5;

/// Program that shows pages.
struct Contestant {
    name: String,
    shows: Shows,
    kind: Kind,
}

enum Kind {
    /// Browser with its home folder.
    Peer(&'static Peer, TempDir),
    /// Evermap with a store that has the pages.
    Warm(PageStore),
    /// Evermap with a new store for every start.
    Cold(Evermap),
}

/// Measurements of one start.
struct StartCost {
    ms: Duration,
    first: Option<Duration>,
    cost: Cost,
}

#[derive(Default)]
struct Figures {
    ms: Samples,
    first_ms: Samples,
    cpu_ms: Samples,
    rss_mib: Samples,
    failure: Option<String>,
}

pub fn report(bench: &mut Bench) -> Outcome {
    let others: HashSet<i32> = running::children()?.into_iter().collect();
    let outcome = measure(bench);
    // Ends helper processes that were left running for later starts.
    running::end_children_except(&others)?;
    outcome
}

fn measure(bench: &Bench) -> Outcome {
    let folder = bench.temporary("peers")?;
    let copies = pages::copy(&bench.own.pages, &folder.path().join("pages"), Without::Scripts)?;
    let mut screen = match screen::missing() {
        None => Some(Screen::start(WIDTH, HEIGHT)?),
        Some(package) => {
            println!("**Skipped: all windows** (install the package `{package}`)\n");
            None
        }
    };
    let rounds = bench.options.rounds_or(ROUNDS, 1);
    println!(
        "{rounds} rounds in turns on a screen of {WIDTH} x {HEIGHT}. Times in ms: median (min-max). x: time divided by \
         evermap's warm time of the same kind.\n"
    );
    let mut columns = Vec::new();
    let mut names = Vec::new();
    for shows in [Shows::Window, Shows::Picture] {
        if shows == Shows::Window && screen.is_none() {
            continue;
        }
        let mut contestants = contestants(bench, shows, folder.path())?;
        if contestants.is_empty() {
            continue;
        }
        let title = match shows {
            Shows::Window => "A window, exec to the last change of pixels",
            Shows::Picture => "A picture file, exec to exit",
        };
        println!("### {title}\n");
        let medians = table(bench, &copies, &mut contestants, &mut screen, rounds)?;
        let title = if shows == Shows::Window { "A window" } else { "A picture file" };
        columns.push(column(title, &contestants, &medians, &mut names));
    }
    draw(bench, columns, names)
}

/// Column of the figure. Each contestant has its own colour: its bars consist of one part only.
fn column(
    title: &str,
    contestants: &[Contestant],
    medians: &[Vec<f64>],
    names: &mut Vec<String>,
) -> Column {
    let mut places = Vec::new();
    for contestant in contestants {
        let place = names.iter().position(|name| *name == contestant.name);
        places.push(place.unwrap_or(names.len()));
        if place.is_none() {
            names.push(contestant.name.clone());
        }
    }
    let bars = medians.iter().map(|medians| {
        let bars = medians.iter().zip(&places).map(|(median, place)| {
            let mut bar = Bar::default();
            if let Some(part) = bar.parts.get_mut(*place).filter(|_| median.is_finite()) {
                *part = *median;
            }
            bar
        });
        bars.collect()
    });
    Column { title: title.to_string(), bars: bars.collect() }
}

fn draw(bench: &Bench, columns: Vec<Column>, names: Vec<String>) -> Outcome {
    if columns.is_empty() || bench.own.evermap.is_none() {
        return Ok(());
    }
    let chart = Chart {
        title: "Time from the start to the displayed page, ms".to_string(),
        order: String::new(),
        parts: names,
        rows: bench.own.pages.iter().map(|page| page.name.clone()).collect(),
        columns,
        of_first: false,
    };
    std::fs::create_dir_all(&bench.options.images)?;
    let path = bench.options.images.join("viewer-peers.svg");
    std::fs::write(&path, chart.svg()?)?;
    println!("Drawn: `{}`", path.display());
    Ok(())
}

fn contestants(bench: &Bench, shows: Shows, folder: &Path) -> Outcome<Vec<Contestant>> {
    let mut contestants = Vec::new();
    if let Some(evermap) = &bench.own.evermap {
        let folder = folder.join(format!("{shows:?}"));
        std::fs::create_dir(&folder)?;
        let warm = Kind::Warm(PageStore::new(evermap, &folder)?);
        contestants.push(Contestant { name: "evermap, warm".into(), shows, kind: warm });
        let cold = Kind::Cold(evermap.clone());
        contestants.push(Contestant { name: "evermap, cold".into(), shows, kind: cold });
    }
    for peer in PEERS.iter().filter(|peer| peer.shows == shows) {
        match peer.missing() {
            None => {
                let kind = Kind::Peer(peer, tempfile::tempdir()?);
                contestants.push(Contestant { name: peer.name.to_string(), shows, kind });
            }
            Some(package) => {
                println!("**Skipped: {}** (install the package `{package}`)\n", peer.name)
            }
        }
    }
    Ok(contestants)
}

fn table(
    bench: &Bench,
    copies: &[Page],
    contestants: &mut [Contestant],
    screen: &mut Option<Screen>,
    rounds: usize,
) -> Outcome<Vec<Vec<f64>>> {
    // Runs first-start work before the measurements.
    for contestant in contestants.iter_mut() {
        if let Err(error) = contestant.start(&copies[0], screen) {
            harness::ends::check_interrupted()?;
            println!("- {}, first start: {error}", contestant.name);
        }
    }
    let with_evermap = bench.own.evermap.is_some();
    let titles = titles(contestants, with_evermap);
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    head(&titles);
    let mut ratios: Vec<Ratios> = contestants.iter().map(|_| Ratios::default()).collect();
    let mut all: Vec<Figures> = contestants.iter().map(|_| Figures::default()).collect();
    let mut medians = Vec::new();
    for page in copies {
        let of = one_page(bench, page, contestants, screen, rounds)?;
        let mut cells = vec![page.name.clone(), page.bytes.to_string()];
        for (index, result) in of.iter().enumerate() {
            match &result.failure {
                Some(failure) => cells.push(format!("**failed**: {failure}")),
                None => cells.push(result.ms.to_string()),
            }
            let ratio = result.median_ms() / of[0].median_ms();
            if with_evermap && index > 0 {
                cells.push(figure(ratio));
            }
            if ratio.is_finite() {
                ratios[index].push(&page.name, ratio);
            }
            all[index].add_medians(result);
        }
        row(&cells);
        medians.push(of.iter().map(Figures::median_ms).collect());
    }
    println!();
    for (index, contestant) in contestants.iter().enumerate() {
        if with_evermap && index > 0 {
            println!("- {} / evermap, warm: {}", contestant.name, ratios[index].summary());
        }
    }
    println!();
    print_medians(contestants, &all);
    println!();
    Ok(medians)
}

/// Titles: each contestant, and its ratio to evermap.
fn titles(contestants: &[Contestant], with_evermap: bool) -> Vec<String> {
    let mut titles = vec!["page".to_string(), "bytes".to_string()];
    for (index, contestant) in contestants.iter().enumerate() {
        titles.push(contestant.name.clone());
        if with_evermap && index > 0 {
            titles.push("x".to_string());
        }
    }
    titles
}

/// Prints the medians over the pages for each contestant.
fn print_medians(contestants: &[Contestant], all: &[Figures]) {
    head(&["medians of the pages", "ms", "first change, ms", "processor, ms", "MiB max"]);
    for (contestant, of) in contestants.iter().zip(all) {
        let first =
            if of.first_ms.count() == 0 { "-".to_string() } else { of.first_ms.to_string() };
        row(&[
            contestant.name.clone(),
            of.ms.to_string(),
            first,
            of.cpu_ms.to_string(),
            of.rss_mib.to_string(),
        ]);
    }
}

/// Measures all contestants on one page, in turns. A contestant that fails is skipped for the rest
/// of the page.
fn one_page(
    bench: &Bench,
    page: &Page,
    contestants: &mut [Contestant],
    screen: &mut Option<Screen>,
    rounds: usize,
) -> Outcome<Vec<Figures>> {
    let mut all: Vec<Figures> = contestants.iter().map(|_| Figures::default()).collect();
    for contestant in contestants.iter_mut() {
        if let Kind::Warm(page_store) = &contestant.kind {
            page_store.keep(page)?;
            if contestant.shows == Shows::Window {
                // The window stores the page again if its size differs.
                contestant.start(page, screen)?;
            }
        }
    }
    for round in 0..rounds {
        for (contestant, of) in contestants.iter_mut().zip(&mut all) {
            if of.failure.is_some() {
                continue;
            }
            match contestant.start(page, screen) {
                Ok(cost) => of.push(&cost),
                Err(error) => {
                    harness::ends::check_interrupted()?;
                    of.failure = Some(error.to_string());
                }
            }
            if let (0, Some(folder)) = (round, &bench.options.pictures) {
                contestant.keep_picture(page, screen, folder)?;
            }
        }
    }
    Ok(all)
}

impl Contestant {
    fn start(&mut self, page: &Page, screen: &mut Option<Screen>) -> Outcome<StartCost> {
        // Lives until the program has ended.
        let mut _new_folder = None;
        let (command, home) = match &self.kind {
            Kind::Peer(peer, home) => (peer.command(page, home.path()), home.path().to_path_buf()),
            Kind::Warm(page_store) => {
                (self.evermap(page_store, page, Start::Warm), page_store.home().to_path_buf())
            }
            Kind::Cold(evermap) => {
                let folder = _new_folder.insert(tempfile::tempdir_in(&working())?);
                let page_store = PageStore::new(evermap, folder.path())?;
                let command = self.evermap(&page_store, page, Start::Cold);
                return run(command, self.shows, page_store.home(), screen);
            }
        };
        run(command, self.shows, &home, screen)
    }

    fn evermap(&self, page_store: &PageStore, page: &Page, start: Start) -> std::process::Command {
        match self.shows {
            Shows::Window => page_store.view(page),
            Shows::Picture => page_store.picture(page, start, false, &picture(page_store.home())),
        }
    }

    fn keep_picture(&self, page: &Page, screen: &Option<Screen>, folder: &Path) -> Outcome {
        std::fs::create_dir_all(folder)?;
        let name = format!("{}--{}", page.name, self.name).replace(['/', ',', ' '], "-");
        match (&self.kind, self.shows, screen) {
            (_, Shows::Window, Some(screen)) => screen.keep_picture(&folder.join(name + ".ppm")),
            (Kind::Peer(_, home), Shows::Picture, _) => {
                std::fs::copy(picture(home.path()), folder.join(name + ".png"))?;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn run(
    command: std::process::Command,
    shows: Shows,
    home: &Path,
    screen: &mut Option<Screen>,
) -> Outcome<StartCost> {
    match shows {
        Shows::Window => {
            let screen = screen.as_mut().ok_or("no screen is running")?;
            let shown = screen.show(command, true)?;
            Ok(StartCost { ms: shown.displayed, first: Some(shown.first), cost: shown.cost })
        }
        Shows::Picture => {
            let path = picture(home);
            if path.exists() {
                std::fs::remove_file(&path)?;
            }
            let ended = Running::start_family(command)?.finish()?;
            match path.metadata() {
                Ok(about) if about.len() > 0 => {}
                _ => return Err("exited successfully, but wrote no picture".into()),
            }
            Ok(StartCost { ms: ended.whole, first: None, cost: ended.cost })
        }
    }
}

impl Figures {
    fn push(&mut self, cost: &StartCost) {
        self.ms.push_ms(cost.ms);
        if let Some(first) = cost.first {
            self.first_ms.push_ms(first);
        }
        self.cpu_ms.push(cost.cost.cpu_ms());
        self.rss_mib.push(cost.cost.rss_max_bytes as f64 / f64::from(1 << 20));
    }

    /// Median time; NaN after a failure.
    fn median_ms(&self) -> f64 {
        if self.failure.is_some() { f64::NAN } else { self.ms.median() }
    }

    fn add_medians(&mut self, of: &Figures) {
        if of.failure.is_some() {
            return;
        }
        self.ms.push(of.ms.median());
        if of.first_ms.count() > 0 {
            self.first_ms.push(of.first_ms.median());
        }
        self.cpu_ms.push(of.cpu_ms.median());
        self.rss_mib.push(of.rss_mib.max());
    }
}
