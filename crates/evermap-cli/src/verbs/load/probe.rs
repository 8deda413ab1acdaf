//! `evermap load probe`: explains how files would be loaded, and the cost.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use evermap_load::{Choice, Facts, ImageSet, Latency, Loader, Method, Order, Report, Rules};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{self, Output};

/// Explain how files would be loaded; with --load, load them and report the cost
///
/// The best method depends on the cached pages, on the file system, and on how the file will be
/// used. The use is unknown except for what the options say. Without options, the whole file is
/// assumed to be touched and written.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap load probe model.bin
  evermap load probe model.bin --touched 10 --order random --load")]
pub struct Probe {
    /// Files to load; with --load, they are loaded together
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Rules by file name; command-line options override them
    #[arg(long, value_name = "RULES")]
    rules: Option<PathBuf>,
    /// Expected share of pages touched
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    touched: Option<u8>,
    /// Expected share of pages written
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    written: Option<u8>,
    /// Expected order of access
    #[arg(long, value_name = "ORDER")]
    order: Option<AccessOrder>,
    /// Optimize for early first use or early completion
    #[arg(long, value_name = "WHAT")]
    latency: Option<Goal>,
    /// Use only this method
    #[arg(long, value_name = "NAME", value_parser = method)]
    method: Option<Method>,
    /// The file may change during the load: do not map it
    #[arg(long)]
    changing: bool,
    /// Load the files, wait until they are complete, and report the cost
    #[arg(long)]
    load: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AccessOrder {
    Unknown,
    Sequential,
    Random,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Goal {
    FirstUse,
    Finish,
}

fn method(name: &str) -> Result<Method, String> {
    Method::from_name(name).ok_or_else(|| {
        let names: Vec<_> = Method::ALL.iter().map(|method| method.name()).collect();
        format!("no such method; available: {}", names.join(", "))
    })
}

/// Output of `--json`: an object for one file, an array for several.
#[derive(Serialize)]
struct ProbeResult {
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
        let mut results = Vec::new();
        for (file, loader) in self.files.iter().zip(&loaders) {
            let (facts, plan) = loader.probe()?;
            let path = file.display().to_string();
            results.push(ProbeResult { path, facts, plan, report: None });
        }
        if self.load {
            for (result, report) in results.iter_mut().zip(loaded(loaders)?) {
                result.report = Some(report);
            }
        }
        let mut output = Output::new();
        match (self.json, results.as_slice()) {
            (true, [only]) => output.json(only)?,
            (true, all) => output.json(&all)?,
            (false, all) => all.iter().try_for_each(|result| print(result, &mut output))?,
        }
        output.finish()
    }

    fn loader(&self, file: &Path, rules: &Rules) -> Loader {
        let rule = rules.find(file);
        let mut loader = rule.map_or_else(|| Loader::open(file), |rule| rule.loader(file));
        if let Some(order) = self.order {
            loader = loader.order(match order {
                AccessOrder::Unknown => Order::Unknown,
                AccessOrder::Sequential => Order::Sequential,
                AccessOrder::Random => Order::Random,
            });
        }
        if let Some(latency) = self.latency {
            loader = loader.latency(match latency {
                Goal::FirstUse => Latency::FirstUse,
                Goal::Finish => Latency::Finish,
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
            // SAFETY: the image's bytes are not accessed here: it is loaded, measured and dropped.
            false => unsafe { loader.may_map() },
        }
    }
}

fn print(result: &ProbeResult, output: &mut Output) -> Result<(), Failure> {
    let ProbeResult { path, facts, plan, report } = result;
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
            None => "unknown (requires Linux 6.5)".into(),
        },
    )?;
    row(
        "direct",
        match facts.direct_block_bytes {
            Some(bytes) => format!("in blocks of {}", output::bytes(bytes)),
            None => "not supported".into(),
        },
    )?;
    if let Some(available) = facts.available_bytes {
        let bytes = output::bytes(available);
        row("memory", format!("{bytes} available, limited by {}", facts.available_limit))?;
    }
    if let Some(rate) = facts.device_bytes_per_s {
        row("device", format!("reads {}/s", output::bytes(rate as u64)))?;
    }
    for (place, choice) in plan.iter().enumerate() {
        let name = if place == 0 { "best" } else { "else" };
        row(name, format!("{}: {}", choice.method, choice.why))?;
    }
    match report {
        Some(report) => print_report(report, output),
        None => Ok(()),
    }
}

/// Loads all files completely and returns their reports.
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

fn print_report(report: &Report, output: &mut Output) -> Result<(), Failure> {
    let mut row = |name: &str, text: String| output.line(&format!("  {name:<9} {text}"));
    let after = |time: Option<f64>| time.map_or("not yet".to_string(), output::seconds);
    row("loaded", format!("by {}", report.choice.method))?;
    for (method, why) in &report.refused {
        row("not", format!("{method}: {why}"))?;
    }
    row(
        "after",
        format!("{} the first use, {} all", after(report.first_use_s), after(report.complete_s)),
    )?;
    let usage = &report.usage;
    row(
        "time",
        format!(
            "{} user, {} system",
            output::seconds(usage.user_s),
            output::seconds(usage.system_s)
        ),
    )?;
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
