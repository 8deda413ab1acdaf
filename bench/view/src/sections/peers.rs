//! How long until a page is on the screen, beside other browsers?
//!
//! All get the same copies of the pages, without scripts and what stands in for them (`noscript`), and without what
//! leads away from the page by itself: programs differ in what they would follow. New processes in turns. Two kinds of work, each compared with its like:
//!
//! - a window on a screen (`screen.rs`): from exec to the last change of pixels;
//! - a picture file: from exec to exit.
//!
//! The windows' work is not equal: Dillo ignores most CSS, NetSurf some. `--pictures` keeps what they drew.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::chart::{Bar, Chart, Column};
use crate::command::{Evermap, HEIGHT, Shelf, Start, WIDTH};
use crate::pages::{self, Page, Without};
use crate::peers::{PEERS, Peer, Shows, picture};
use crate::process::{self, Running, Usage};
use crate::ratios::Ratios;
use crate::samples::{Samples, figure, head, row};
use crate::screen::{self, Screen};
use crate::{Bench, Outcome, environment, machine};

const ROUNDS: usize = 5;

/// One who shows pages.
struct Contestant {
    name: String,
    shows: Shows,
    who: Who,
}

enum Who {
    /// With a home folder.
    Peer(&'static Peer, TempDir),
    /// With what is kept.
    Warm(Shelf),
    /// With a new store for every start.
    Cold(Evermap),
}

/// What one start took.
struct Took {
    ms: Duration,
    first: Option<Duration>,
    usage: Usage,
}

#[derive(Default)]
struct Of {
    ms: Samples,
    first_ms: Samples,
    cpu_ms: Samples,
    rss_mib: Samples,
    failure: Option<String>,
}

pub fn report(bench: &Bench) -> Outcome {
    let others: HashSet<i32> = process::children()?.into_iter().collect();
    let outcome = measure(bench);
    // Helper processes that were left for later starts.
    process::end_children_except(&others)?;
    outcome
}

fn measure(bench: &Bench) -> Outcome {
    let folder =
        tempfile::Builder::new().prefix("evermap-view-bench-").tempdir_in(machine::disk_folder())?;
    let copies = pages::copy(&bench.pages, &folder.path().join("pages"), Without::Scripts)?;
    let mut screen = match screen::missing() {
        None => Some(Screen::start(WIDTH, HEIGHT)?),
        Some(package) => {
            println!("**Skipped: all windows** (install the package `{package}`)\n");
            None
        }
    };
    let rounds = bench.options.rounds(ROUNDS);
    println!(
        "{rounds} rounds in turns on a screen of {WIDTH} x {HEIGHT}. Times in ms: median (least-most). x: how often \
         evermap's warm time of the same kind fits.\n"
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

/// A column of the figure. Each contestant has a colour of its own: that of the part its bars consist of.
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
    if columns.is_empty() || bench.evermap.is_none() {
        return Ok(());
    }
    let chart = Chart {
        title: "Time from the start to the displayed page, ms".to_string(),
        order: String::new(),
        parts: names,
        rows: bench.pages.iter().map(|page| page.name.clone()).collect(),
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
    if let Some(evermap) = &bench.evermap {
        let folder = folder.join(format!("{shows:?}"));
        std::fs::create_dir(&folder)?;
        let warm = Who::Warm(Shelf::new(evermap, &folder)?);
        contestants.push(Contestant { name: "evermap, warm".into(), shows, who: warm });
        let cold = Who::Cold(evermap.clone());
        contestants.push(Contestant { name: "evermap, cold".into(), shows, who: cold });
    }
    for peer in PEERS.iter().filter(|peer| peer.shows == shows) {
        match peer.missing() {
            None => {
                let who = Who::Peer(peer, tempfile::tempdir()?);
                contestants.push(Contestant { name: peer.name.to_string(), shows, who });
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
    // What a first start does once is done.
    for contestant in contestants.iter_mut() {
        if let Err(error) = contestant.start(&copies[0], screen) {
            environment::go_on()?;
            println!("- {}, first start: {error}", contestant.name);
        }
    }
    let with_evermap = bench.evermap.is_some();
    let titles = titles(contestants, with_evermap);
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    head(&titles);
    let mut ratios: Vec<Ratios> = contestants.iter().map(|_| Ratios::default()).collect();
    let mut all: Vec<Of> = contestants.iter().map(|_| Of::default()).collect();
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
        medians.push(of.iter().map(Of::median_ms).collect());
    }
    println!();
    for (index, contestant) in contestants.iter().enumerate() {
        if with_evermap && index > 0 {
            println!("- {} / evermap, warm: {}", contestant.name, ratios[index].summary());
        }
    }
    println!();
    what_it_took(contestants, &all);
    println!();
    Ok(medians)
}

/// For each contestant, and for how often evermap fits into it.
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

/// The median page of each contestant.
fn what_it_took(contestants: &[Contestant], all: &[Of]) {
    head(&["medians of the pages", "ms", "first change, ms", "processor, ms", "MiB at most"]);
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

/// All contestants on one page, in turns. One that fails is out for this page.
fn one_page(
    bench: &Bench,
    page: &Page,
    contestants: &mut [Contestant],
    screen: &mut Option<Screen>,
    rounds: usize,
) -> Outcome<Vec<Of>> {
    let mut all: Vec<Of> = contestants.iter().map(|_| Of::default()).collect();
    for contestant in contestants.iter_mut() {
        if let Who::Warm(shelf) = &contestant.who {
            shelf.keep(page)?;
            if contestant.shows == Shows::Window {
                // The window keeps the page again if it lays it out at another size.
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
                Ok(took) => of.push(&took),
                Err(error) => {
                    environment::go_on()?;
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
    fn start(&mut self, page: &Page, screen: &mut Option<Screen>) -> Outcome<Took> {
        // Lives until the program has ended.
        let mut _new_folder = None;
        let (command, home) = match &self.who {
            Who::Peer(peer, home) => (peer.command(page, home.path()), home.path().to_path_buf()),
            Who::Warm(shelf) => {
                (self.evermap(shelf, page, Start::Warm), shelf.home().to_path_buf())
            }
            Who::Cold(evermap) => {
                let folder = _new_folder.insert(tempfile::tempdir_in(machine::disk_folder())?);
                let shelf = Shelf::new(evermap, folder.path())?;
                let command = self.evermap(&shelf, page, Start::Cold);
                return run(command, self.shows, shelf.home(), screen);
            }
        };
        run(command, self.shows, &home, screen)
    }

    fn evermap(&self, shelf: &Shelf, page: &Page, start: Start) -> std::process::Command {
        match self.shows {
            Shows::Window => shelf.view(page),
            Shows::Picture => shelf.picture(page, start, false, &picture(shelf.home())),
        }
    }

    fn keep_picture(&self, page: &Page, screen: &Option<Screen>, folder: &Path) -> Outcome {
        std::fs::create_dir_all(folder)?;
        let name = format!("{}--{}", page.name, self.name).replace(['/', ',', ' '], "-");
        match (&self.who, self.shows, screen) {
            (_, Shows::Window, Some(screen)) => screen.keep_picture(&folder.join(name + ".ppm")),
            (Who::Peer(_, home), Shows::Picture, _) => {
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
) -> Outcome<Took> {
    match shows {
        Shows::Window => {
            let screen = screen.as_mut().ok_or("there is no screen")?;
            let shown = screen.show(command, true)?;
            Ok(Took { ms: shown.displayed, first: Some(shown.first), usage: shown.usage })
        }
        Shows::Picture => {
            let path = picture(home);
            if path.exists() {
                std::fs::remove_file(&path)?;
            }
            let ended = Running::start(command)?.finish()?;
            match path.metadata() {
                Ok(about) if about.len() > 0 => {}
                _ => return Err("ended well, but wrote no picture".into()),
            }
            Ok(Took { ms: ended.whole, first: None, usage: ended.usage })
        }
    }
}

impl Of {
    fn push(&mut self, took: &Took) {
        self.ms.push_ms(took.ms);
        if let Some(first) = took.first {
            self.first_ms.push_ms(first);
        }
        self.cpu_ms.push_ms(took.usage.cpu);
        self.rss_mib.push(took.usage.rss_max_bytes as f64 / f64::from(1 << 20));
    }

    /// Not a number if it failed.
    fn median_ms(&self) -> f64 {
        if self.failure.is_some() { f64::NAN } else { self.ms.median() }
    }

    fn add_medians(&mut self, of: &Of) {
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
