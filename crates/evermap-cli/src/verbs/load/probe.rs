//! `evermap load probe`: how files would be loaded, why, and what that costs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use evermap_load::{Choice, Facts, ImageSet, Latency, Loader, Method, Order, Report, Rules};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{self, Output};

/// Tell how files would be loaded, and why; with --load, load them and tell what that cost
///
/// There are many ways to have a file's bytes in memory, and which is best depends on what is cached, on the file system, and on what will be
/// done with them. Nothing is known of that but what the options say: without them, all of the file is touched and written.
#[derive(Debug, clap::Args)]
pub struct Probe {
    /// The files; with --load, they are loaded together
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// What is known of files by their names; the other options count more
    #[arg(long, value_name = "RULES")]
    rules: Option<PathBuf>,
    /// How much of it will be touched
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    touched: Option<u8>,
    /// How much of it will be written
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    written: Option<u8>,
    /// In which order
    #[arg(long, value_name = "ORDER")]
    order: Option<Touches>,
    /// What is to be soon
    #[arg(long, value_name = "WHAT")]
    latency: Option<Soon>,
    /// By this method and no other
    #[arg(long, value_name = "NAME", value_parser = method)]
    method: Option<Method>,
    /// Somebody may change the file meanwhile: don't map it
    #[arg(long)]
    changing: bool,
    /// Load it, wait until all is there, and tell what that cost
    #[arg(long)]
    load: bool,
    /// The same as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Touches {
    Unknown,
    Sequential,
    Random,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Soon {
    FirstUse,
    Finish,
}

fn method(name: &str) -> Result<Method, String> {
    Method::from_name(name).ok_or_else(|| {
        let names: Vec<_> = Method::ALL.iter().map(|method| method.name()).collect();
        format!("no method has this name; there are {}", names.join(", "))
    })
}

/// What `--json` prints: of one file an object, of several an array of them.
#[derive(Serialize)]
struct Told {
    path: String,
    facts: Facts,
    plan: Vec<Choice>,
    report: Option<Report>,
}

impl Probe {
    pub fn run(&self) -> Result<(), Failure> {
        let rules = self.rules.as_ref().map(Rules::read).transpose()?.unwrap_or_default();
        let loaders: Vec<Loader> =
            self.files.iter().map(|file| self.loader(file, &rules)).collect();
        let mut told = Vec::new();
        for (file, loader) in self.files.iter().zip(&loaders) {
            let (facts, plan) = loader.probe()?;
            let path = file.display().to_string();
            told.push(Told { path, facts, plan, report: None });
        }
        if self.load {
            for (told, report) in told.iter_mut().zip(loaded(loaders)?) {
                told.report = Some(report);
            }
        }
        let mut output = Output::new();
        match (self.json, told.as_slice()) {
            (true, [only]) => output.json(only)?,
            (true, all) => output.json(&all)?,
            (false, all) => all.iter().try_for_each(|told| tell(told, &mut output))?,
        }
        output.finish()
    }

    fn loader(&self, file: &Path, rules: &Rules) -> Loader {
        let rule = rules.find(file);
        let mut loader = rule.map_or_else(|| Loader::open(file), |rule| rule.loader(file));
        if let Some(order) = self.order {
            loader = loader.order(match order {
                Touches::Unknown => Order::Unknown,
                Touches::Sequential => Order::Sequential,
                Touches::Random => Order::Random,
            });
        }
        if let Some(latency) = self.latency {
            loader = loader.latency(match latency {
                Soon::FirstUse => Latency::FirstUse,
                Soon::Finish => Latency::Finish,
            });
        }
        if let Some(percent) = self.touched {
            loader = loader.touched(f64::from(percent) / 100.0);
        }
        if let Some(percent) = self.written {
            loader = loader.written(f64::from(percent) / 100.0);
        }
        if let Some(method) = self.method {
            loader = loader.method(method);
        }
        match self.changing || rule.is_some_and(|rule| rule.unchanging() == Some(false)) {
            true => loader,
            // SAFETY: nothing looks at the image's bytes here: it is loaded, measured and dropped.
            false => unsafe { loader.may_map() },
        }
    }
}

fn tell(told: &Told, output: &mut Output) -> Result<(), Failure> {
    let Told { path, facts, plan, report } = told;
    let mut system = facts.file_system.clone();
    if facts.is_unchangeable {
        system += ", unchangeable";
    }
    output.line(&format!("{path}: {}, {system}", output::bytes(facts.bytes)))?;
    let mut row = |name: &str, text: String| output.line(&format!("  {name:<9} {text}"));
    row(
        "cached",
        match facts.resident_bytes {
            Some(_) => format!("{:.0} %", facts.resident_share() * 100.0),
            None => "not known: Linux 6.5 tells".into(),
        },
    )?;
    row(
        "direct",
        match facts.direct_block_bytes {
            Some(bytes) => format!("reads of whole {}", output::bytes(bytes)),
            None => "no reads past the page cache".into(),
        },
    )?;
    if let Some(available) = facts.available_bytes {
        let bytes = output::bytes(available);
        row("memory", format!("{bytes} can be had, as {} says", facts.available_limit))?;
    }
    if let Some(rate) = facts.device_bytes_per_s {
        row("device", format!("reads {}/s by itself", output::bytes(rate as u64)))?;
    }
    for (place, choice) in plan.iter().enumerate() {
        let name = if place == 0 { "best" } else { "else" };
        row(name, format!("{}: {}", choice.method, choice.why))?;
    }
    match report {
        Some(report) => tell_report(report, output),
        None => Ok(()),
    }
}

/// Loads all of all files, and tells what each cost.
fn loaded(loaders: Vec<Loader>) -> Result<Vec<Report>, Failure> {
    if let [only] = loaders.as_slice() {
        let image = only.load()?;
        image.wait()?;
        return Ok(vec![image.report()]);
    }
    let set = ImageSet::load(loaders)?;
    set.wait()?;
    Ok(set.iter().map(|image| image.report()).collect())
}

fn tell_report(report: &Report, output: &mut Output) -> Result<(), Failure> {
    let mut row = |name: &str, text: String| output.line(&format!("  {name:<9} {text}"));
    let seconds = |seconds: f64| output::duration(Duration::from_secs_f64(seconds.max(0.0)));
    let after = |time: Option<f64>| time.map_or("not yet".to_string(), seconds);
    row("loaded", format!("by {}", report.choice.method))?;
    for (method, why) in &report.refused {
        row("not", format!("{method}: {why}"))?;
    }
    row(
        "after",
        format!("{} the first use, {} all", after(report.first_use_s), after(report.complete_s)),
    )?;
    let usage = &report.usage;
    row("time", format!("{} user, {} system", seconds(usage.user_s), seconds(usage.system_s)))?;
    row(
        "faults",
        format!(
            "{} minor, {} major",
            output::count(usage.minor_faults),
            output::count(usage.major_faults)
        ),
    )?;
    let residency = &report.residency;
    row(
        "memory",
        format!(
            "{} private ({} in huge pages), {} of the file mapped, {} cached, {} twice",
            output::bytes(residency.private_bytes),
            output::bytes(residency.huge_bytes),
            output::bytes(residency.file_bytes),
            output::bytes(residency.cached_bytes),
            output::bytes(residency.duplicate_bytes)
        ),
    )?;
    if let Some(share) = report.device_share {
        row("device", format!("{:.0} % of its rate", share * 100.0))?;
    }
    Ok(())
}
