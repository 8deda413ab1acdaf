//! `evermap lane place`: moves files to the fast tier and back.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::{Subcommand, ValueEnum};
use evermap_lane::tier::{
    self, Checked, Journal, Keep, Kind, Plan, Request, SkipReason, Skipped, Unsuitable, Watch,
};
use evermap_lane::{Placement, Policy};
use evermap_trace::Trace;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{self, Output};
use crate::progress::Progress;

const EXAMPLES: &str = "Examples:
  evermap lane place plan clip.mkv              # show what would go to memory
  evermap lane place apply --tier /mnt/nvme --mode switch 'films/*.mkv'
  evermap lane place back films/one.mkv
  evermap lane place verify --tier /dev/shm     # list and check the copies in memory
  evermap lane place back --tier /dev/shm       # remove them";

/// Move files to the fast tier and back
///
/// Mode `view` puts a copy on the tier, which `evermap lane run` shows to its program in place of
/// the file; the file stays unchanged. Mode `switch`, for tiers that survive a restart, moves the
/// file and leaves a link in its place. The file's path leads to its contents at every moment.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Place {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show which files would be placed, in order, and why others would not; change nothing
    Plan(Planned),
    /// Place files on the tier
    Apply(Apply),
    /// Move files back; without FILES all switched files, or all copies of this user on --tier
    Back(Back),
    /// Check that placed files are intact; exits with 5 if not
    Verify(Verify),
}

/// Files and tier.
#[derive(Debug, clap::Args)]
struct Chosen {
    /// Policy file that names files and tier; command-line options override it
    #[arg(long, value_name = "POLICY")]
    policy: Option<PathBuf>,
    /// Directory on the fast tier [default: memory]
    #[arg(long, value_name = "DIR")]
    tier: Option<PathBuf>,
    /// Place a copy that only the program sees, or move the file itself
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    /// Place at most this many MiB
    #[arg(long, value_name = "MIB")]
    budget: Option<u64>,
    /// Place files with the most bytes read per byte in this trace first (`evermap lane trace`,
    /// strace, perf and others)
    #[arg(long, value_name = "TRACE")]
    trace: Option<PathBuf>,
    /// Paths, or patterns with * ? [..] and **, in order of priority
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap lane place plan clip.mkv")]
struct Planned {
    #[command(flatten)]
    chosen: Chosen,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap lane place apply --tier /mnt/nvme --mode switch 'films/*.mkv'")]
struct Apply {
    #[command(flatten)]
    chosen: Chosen,
    /// Remove originals of moved files once their copies were read back; otherwise they are kept
    /// next to the links
    #[arg(long)]
    commit: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap lane place back films/one.mkv
  evermap lane place back --tier /dev/shm")]
struct Back {
    /// Policy file that names the tier
    #[arg(long, value_name = "POLICY")]
    policy: Option<PathBuf>,
    /// Tier to remove copies from
    #[arg(long, value_name = "DIR")]
    tier: Option<PathBuf>,
    /// Version to keep if both were written to, the copy is damaged, or the file's directory was
    /// replaced
    #[arg(long, value_name = "WHICH")]
    keep: Option<Kept>,
    /// Files to move back, by their original paths
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap lane place verify --tier /dev/shm")]
struct Verify {
    /// Policy file that names the tier
    #[arg(long, value_name = "POLICY")]
    policy: Option<PathBuf>,
    /// Tier whose copies are checked as well
    #[arg(long, value_name = "DIR")]
    tier: Option<PathBuf>,
    /// Remove the kept originals of moved files whose copies are intact
    #[arg(long)]
    commit: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Common {
    /// Directory of records of moved files [default: /var/lib/evermap-lane for root,
    /// $XDG_STATE_HOME/evermap/lane]
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
    /// Print a JSON object for each file
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    View,
    Switch,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kept {
    Copy,
    Original,
}

/// Output of `--json` for a file that was placed or moved back.
#[derive(Serialize)]
struct JsonReport<'a> {
    path: String,
    copy: Option<String>,
    done: &'a str,
    error: Option<String>,
}

impl Place {
    pub fn run(&self) -> Result<(), Failure> {
        match &self.what {
            What::Plan(plan) => plan.run(),
            What::Apply(apply) => apply.run(),
            What::Back(back) => back.run(),
            What::Verify(verify) => verify.run(),
        }
    }
}

impl Chosen {
    fn plan(&self) -> Result<Plan, Failure> {
        let policy = policy_of(self.policy.as_deref())?;
        let mut request = Request::of_policy(&policy.unwrap_or_default());
        if let Some(tier) = &self.tier {
            request.tier.clone_from(tier);
        }
        if let Some(mode) = self.mode {
            request.mode = match mode {
                Mode::View => Placement::View,
                Mode::Switch => Placement::Switch,
            };
        }
        if let Some(mib) = self.budget {
            request.budget_bytes = Some(mib.saturating_mul(1 << 20));
        }
        if !self.files.is_empty() {
            request.files.clone_from(&self.files);
        }
        if let Some(trace) = &self.trace {
            request.rank_by(&Trace::read(trace, None)?);
        }
        match request.files.is_empty() {
            true => Err(Failure::Usage(
                "no files: name files, or a policy with `files` in its [tier]".into(),
            )),
            false => Ok(Plan::make(&request)?),
        }
    }
}

impl Planned {
    fn run(&self) -> Result<(), Failure> {
        let plan = self.chosen.plan()?;
        let mut output = Output::new();
        match self.json {
            true => output.json(&plan)?,
            false => print_plan(&plan, &mut output)?,
        }
        output.finish()
    }
}

impl Apply {
    fn run(&self) -> Result<(), Failure> {
        let plan = self.chosen.plan()?;
        if self.commit && plan.mode != Placement::Switch {
            let what = "--commit needs --mode switch: mode view leaves the original in its place";
            return Err(Failure::Usage(what.into()));
        }
        let journal = match plan.mode {
            Placement::Switch if plan.tier.is_lasting() => Some(self.common.journal()?),
            _ => None,
        };
        let watch = watch("placing");
        let applied = tier::place(&plan, journal.as_ref(), &watch)?;
        let mut output = Output::new();
        let mut failures = Failures::default();
        for placed in applied.placed {
            let committed = match (&journal, self.commit) {
                (Some(journal), true) => tier::commit(journal, &placed.path, &watch),
                _ => Ok(()),
            };
            let done = match (placed.was_there, self.commit) {
                (true, _) => "was there",
                (false, true) if committed.is_ok() => "committed",
                _ => "placed",
            };
            if let Some(what) = &placed.not_kept {
                output::warn(&format!("{}: not kept on the tier: {what}", placed.path.display()));
            }
            self.common.print(&placed.path, Some(&placed.copy), done, &mut output)?;
            if let Err(error) = committed {
                failures.add(error);
            }
        }
        for skipped in &plan.skipped {
            let why = skipped.why.to_string();
            self.common.print_failure(&skipped.path, "skipped", &why, &mut output)?;
        }
        for (path, error) in applied.failed {
            if self.common.json {
                self.common.print_failure(&path, "failed", &error.to_string(), &mut output)?;
            }
            failures.add(error);
        }
        output.finish()?;
        // Naming files that are already placed is not an error.
        let is_there =
            |skipped: &Skipped| skipped.why == SkipReason::Unsuitable(Unsuitable::OnTier);
        let is_nothing = plan.files.is_empty() && !plan.skipped.iter().all(is_there);
        failures.end()?;
        let mut absent = plan.unmatched.iter().map(|pattern| Failure::Source {
            path: pattern.into(),
            source: io::Error::new(io::ErrorKind::NotFound, "no file matches"),
        });
        if let Some(first) = absent.next() {
            absent.for_each(|failure| failure.print());
            return Err(first);
        }
        match is_nothing {
            true => Err(Failure::Usage("none of these files can be placed".into())),
            false => Ok(()),
        }
    }
}

impl Back {
    fn run(&self) -> Result<(), Failure> {
        let tier = tier_of(self.policy.as_deref(), self.tier.as_deref())?;
        let journal = self.common.found_journal()?;
        let files = match (self.files.is_empty(), &tier) {
            (false, _) => self.files.clone(),
            (true, Some(tier)) => tier::views(tier)?,
            (true, None) => switched(journal.as_ref())?,
        };
        let keep = match self.keep {
            None => Keep::Neither,
            Some(Kept::Copy) => Keep::Copy,
            Some(Kept::Original) => Keep::Original,
        };
        let watch = watch("taking back");
        let mut output = Output::new();
        let mut failures = Failures::default();
        for file in &files {
            match tier::back(journal.as_ref(), tier.as_deref(), file, keep, &watch) {
                Ok(()) => self.common.print(file, None, "back", &mut output)?,
                Err(error @ tier::Error::Cancelled { .. }) => return Err(error.into()),
                Err(error) => {
                    if self.common.json {
                        self.common.print_failure(
                            file,
                            "failed",
                            &error.to_string(),
                            &mut output,
                        )?;
                    }
                    failures.add(error);
                }
            }
        }
        output.finish()?;
        if files.is_empty() {
            output::warn(&nothing(tier.as_deref()));
        }
        failures.end()
    }
}

impl Verify {
    fn run(&self) -> Result<(), Failure> {
        let tier = tier_of(self.policy.as_deref(), self.tier.as_deref())?;
        let journal = self.common.found_journal()?;
        let watch = watch("reading");
        let all = tier::verify(journal.as_ref(), tier.as_deref(), &watch)?;
        let mut output = Output::new();
        let mut failures = Failures::default();
        for checked in &all {
            match self.common.json {
                true => output.json(checked)?,
                false => output.line(&summary_line(checked))?,
            }
            if let (true, Some(journal), Placement::Switch) =
                (self.commit && !checked.health.is_bad(), &journal, checked.mode)
                && let Err(error) = tier::commit(journal, &checked.path, &watch)
            {
                failures.add(error);
            }
        }
        output.finish()?;
        if all.is_empty() {
            output::warn(&nothing(tier.as_deref()));
        }
        failures.end()?;
        match all.iter().filter(|checked| checked.health.is_bad()).count() {
            0 => Ok(()),
            bad => Err(Failure::DamageFound(format!(
                "{bad} of {} placed files are damaged or missing",
                all.len()
            ))),
        }
    }
}

impl Common {
    fn journal(&self) -> Result<Journal, Failure> {
        Ok(match &self.journal {
            Some(path) => Journal::at(path)?,
            None => Journal::of_user()?,
        })
    }

    /// Opens the journal, if there is one. It exists only if files were moved.
    fn found_journal(&self) -> Result<Option<Journal>, Failure> {
        let path = match &self.journal {
            Some(path) => path.clone(),
            None => Journal::path_of_user()?,
        };
        Ok(Journal::find(&path)?)
    }

    fn print(
        &self,
        path: &Path,
        copy: Option<&Path>,
        done: &str,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let (path, copy) =
            (path.display().to_string(), copy.map(|copy| copy.display().to_string()));
        if self.json {
            return output.json(&JsonReport { path, copy, done, error: None });
        }
        let at = copy.map(|copy| format!(": {copy}")).unwrap_or_default();
        output.line(&output::plain(&format!("{path}: {done}{at}")))
    }

    fn print_failure(
        &self,
        path: &Path,
        done: &str,
        why: &str,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let path = path.display().to_string();
        match self.json {
            true => output.json(&JsonReport { path, copy: None, done, error: Some(why.into()) }),
            false => output.line(&output::plain(&format!("{path}: {done}: {why}"))),
        }
    }
}

/// Collects failures. The first one determines the exit code; the others are printed at once.
#[derive(Default)]
struct Failures {
    first: Option<tier::Error>,
}

impl Failures {
    fn add(&mut self, error: tier::Error) {
        match &self.first {
            None => self.first = Some(error),
            Some(_) => Failure::from(error).print(),
        }
    }

    fn end(self) -> Result<(), Failure> {
        self.first.map_or(Ok(()), |error| Err(error.into()))
    }
}

fn policy_of(path: Option<&Path>) -> Result<Option<evermap_lane::Tier>, Failure> {
    let policy = path.map(Policy::read).transpose()?;
    Ok(policy.map(|policy| policy.tier))
}

/// Tier named by the option or the policy. `None` if neither names one.
fn tier_of(policy: Option<&Path>, tier: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    let of_policy = policy_of(policy)?.map(|policy| Request::of_policy(&policy).tier);
    Ok(tier.map(Path::to_path_buf).or(of_policy))
}

/// Message if nothing was found. Copies of mode `view` are found only on a named tier.
fn nothing(tier: Option<&Path>) -> String {
    if let Some(tier) = tier {
        return format!("no copies of this user on {}", tier.display());
    }
    let memory = Request::of_policy(&evermap_lane::Tier::default()).tier;
    match tier::views(&memory).map_or(0, |copies| copies.len()) {
        0 => "no switched files; use `--tier DIR` for copies of mode `view`".into(),
        copies => format!(
            "no switched files; {copies} copies of mode `view` are in memory: use `--tier {}`",
            memory.display()
        ),
    }
}

/// All switched files.
fn switched(journal: Option<&Journal>) -> Result<Vec<PathBuf>, Failure> {
    let Some(journal) = journal else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for file in journal.files()? {
        match file {
            Ok(path) => files.push(path),
            Err(error) => Failure::from(error).print(),
        }
    }
    Ok(files)
}

/// Progress bar that signals can cancel.
pub fn watch(doing: &'static str) -> Watch {
    let bar: Mutex<Option<(PathBuf, Progress)>> = Mutex::new(None);
    let cancelled: Arc<_> = evermap_transfer::cancelled_by_signals();
    Watch::default().cancelled_by(cancelled).on_progress(move |path, progress| {
        let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
        if bar.as_ref().is_none_or(|(of, _)| of != path) {
            *bar = None;
            let name = path.display().to_string();
            *bar = Some((path.into(), Progress::of(&name, doing, progress.total_bytes)));
        }
        if let Some((_, bar)) = bar.as_ref() {
            bar.at(progress.done_bytes);
        }
        if progress.done_bytes == progress.total_bytes {
            *bar = None;
        }
    })
}

fn print_plan(plan: &Plan, output: &mut Output) -> Result<(), Failure> {
    let tier = &plan.tier;
    let kind = match tier.kind {
        Kind::Memory => "memory",
        Kind::Dax => "persistent memory",
        Kind::Disk => "a disk",
        Kind::Remote => "remote",
        _ => "storage",
    };
    let mode = match plan.mode {
        Placement::View => "view",
        Placement::Switch => "switch",
    };
    output.line(&output::plain(&format!(
        "tier {}: {kind} ({}), {} free; mode {mode}",
        tier.path.display(),
        tier.file_system,
        output::bytes(tier.free_bytes)
    )))?;
    if let (Placement::Switch, Some(why)) = (plan.mode, &tier.not_lasting) {
        output.line(&output::plain(&format!("  files cannot be switched to it: {why}")))?;
    }
    for file in &plan.files {
        let read = match file.read_bytes {
            Some(read) => format!(", {} read", output::bytes(read)),
            None => String::new(),
        };
        let there = if file.is_there { ", already placed" } else { "" };
        let size = output::bytes(file.data_bytes);
        output.line(&output::plain(&format!("  {}: {size}{read}{there}", file.path.display())))?;
    }
    for skipped in &plan.skipped {
        output.line(&output::plain(&format!(
            "  skipped {}: {}",
            skipped.path.display(),
            skipped.why
        )))?;
    }
    for pattern in &plan.unmatched {
        output.line(&output::plain(&format!("  skipped {pattern}: no file matches")))?;
    }
    let files = output::counted(plan.files.len() as u64, "file");
    output.line(&format!("{files}, {} to be copied", output::bytes(plan.new_bytes())))
}

fn summary_line(checked: &Checked) -> String {
    let health = format!("{:?}", checked.health).to_lowercase();
    output::plain(&format!("{}: {health}: {}", checked.path.display(), checked.what))
}
