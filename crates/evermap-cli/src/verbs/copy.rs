//! `evermap copy`: files by the cheapest path there is.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::ValueEnum;
use evermap_transfer::engines::{EngineKind, Tuning};
use evermap_transfer::{Follow, Reflink, Report, SharedLinks};
use serde::Serialize;

use super::transfer::{Level, explain};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::progress::Progress;

/// Copy files by the cheapest path there is
///
/// A copy has its name only when it is complete; what had the name keeps it until then. Holes stay holes, and owner, mode,
/// times, ACLs and extended attributes are kept as far as you may. Which way the bytes go is picked by what is cached, by file
/// system, size and durability; `--explain` tells what was picked and why.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "evermap copy [OPTIONS] <SOURCE>... <DEST>\n       evermap copy --clean <DIR>"
)]
pub struct Copy {
    /// What to copy, and last where to: a name, or a directory to copy into. `SOURCE/.` is what is in SOURCE
    #[arg(required_unless_present = "clean", num_args = 2.., value_names = ["SOURCE", "DEST"])]
    paths: Vec<PathBuf>,
    /// Take DEST for the copy's own name, also if it is a directory: a directory is merged into it
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// Copy symbolic links as links, also those that are named
    #[arg(short = 'P', long, overrides_with_all = ["follow_named", "dereference"])]
    no_dereference: bool,
    /// Follow the symbolic links that are named, and none within a directory, as it does anyway
    #[arg(short = 'H', id = "follow_named", overrides_with_all = ["no_dereference", "dereference"])]
    follow_named: bool,
    /// Follow all symbolic links: copy what they lead to
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "follow_named"])]
    dereference: bool,
    /// What holds when the command ends: `data` is on the disk, `full` under its name
    #[arg(long, value_name = "LEVEL", default_value = "none")]
    durability: Level,
    /// Share blocks with the source where the file system can
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    reflink: When,
    /// Read the copy back from the disk, and compare it with the source, before it gets its name
    #[arg(long)]
    verify: bool,
    /// When interrupted, leave a part; go on with the one that is there
    #[arg(long)]
    resume: bool,
    /// Of a directory, copy what can be copied, and list the rest
    #[arg(long)]
    keep_going: bool,
    /// Of a directory, leave out what is on other file systems
    #[arg(long)]
    one_file_system: bool,
    /// Move the bytes this way and no other
    #[arg(long, value_name = "NAME", value_parser = engine)]
    engine: Option<EngineKind>,
    /// How many pipes `--engine splice` works with at a time
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=64))]
    lanes: u8,
    /// Remove what killed copies left in this directory and below; running copies keep what they have
    #[arg(long, value_name = "DIR", conflicts_with = "paths")]
    clean: Option<PathBuf>,
    /// With --clean, remove parts as well that --resume could go on with
    #[arg(long, requires = "clean")]
    parts: bool,
    /// Tell which way was picked and why, and what it has cost
    #[arg(long)]
    explain: bool,
    /// The same as JSON, an object a source
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum When {
    Auto,
    Never,
    Always,
}

/// Line of `--json` for one source.
#[derive(Serialize)]
struct Told<'a> {
    source: Cow<'a, str>,
    /// The path of the copy.
    target: Cow<'a, str>,
    #[serde(flatten)]
    report: &'a Report,
}

/// An engine by its name.
pub fn engine(name: &str) -> Result<EngineKind, String> {
    EngineKind::from_name(name).ok_or_else(|| {
        let names: Vec<_> = EngineKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("no engine has this name; there are {}", names.join(", "))
    })
}

impl Copy {
    pub fn run(&self) -> Result<(), Failure> {
        if let Some(directory) = &self.clean {
            return self.clean(directory);
        }
        let Some((target, sources)) = self.paths.split_last() else {
            return Err(Failure::Usage("name what to copy, and where to".into()));
        };
        if sources.len() > 1 && self.no_target_directory {
            return Err(Failure::Usage(
                "with -T there is one source, as DEST is the name of its copy".into(),
            ));
        }
        if sources.len() > 1 && !target.is_dir() {
            return Err(Failure::Usage(format!(
                "{} is no directory: several sources are copied into one",
                target.display()
            )));
        }
        let cancelled = evermap_transfer::cancelled_by_signals();
        let mut output = Output::new();
        let links = Arc::new(SharedLinks::default());
        // A failure does not stop the remaining copies; the first one is the command's.
        let mut failed = None;
        for source in sources {
            // Before it is there: afterwards a new directory is one to copy into.
            let path = self.path_of_copy(source, target);
            match self.copy(source, target, &path, &links, &cancelled) {
                Ok(report) => {
                    self.tell(source, &path, &report, &mut output)?;
                    if let Some(tree) = report.tree.as_ref().filter(|tree| tree.errors_total > 0) {
                        failed.get_or_insert(Failure::NotAllCopied { count: tree.errors_total });
                    }
                }
                Err(failure) if failed.is_none() && !matches!(failure.exit_code(), 130) => {
                    failed = Some(failure)
                }
                Err(failure) if failure.exit_code() == 130 => return Err(failure),
                Err(failure) => failure.say(),
            }
        }
        output.finish()?;
        failed.map_or(Ok(()), Err)
    }

    /// The path that the copy of a source gets.
    fn path_of_copy(&self, source: &Path, target: &Path) -> PathBuf {
        let is_contents =
            source.as_os_str() == "." || source.as_os_str().as_bytes().ends_with(b"/.");
        if is_contents || self.no_target_directory || !target.is_dir() {
            return target.to_path_buf();
        }
        let canonical = || source.canonicalize().ok()?.file_name().map(OsStr::to_os_string);
        match source.file_name().map(OsStr::to_os_string).or_else(canonical) {
            Some(name) => target.join(name),
            None => target.to_path_buf(),
        }
    }

    fn copy(
        &self,
        source: &Path,
        target: &Path,
        path: &Path,
        links: &Arc<SharedLinks>,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<Report, Failure> {
        let is_tree = source.is_dir() && !(self.no_dereference && source.is_symlink());
        if is_tree && std::fs::metadata(path).is_ok_and(|found| !found.is_dir()) {
            return Err(Failure::NotOntoFile { from: source.into(), to: path.into() });
        }
        let mut copy = evermap_transfer::Copy::new(source, target)
            .durability(self.durability.into())
            .reflink(match self.reflink {
                When::Auto => Reflink::Auto,
                When::Never => Reflink::Never,
                When::Always => Reflink::Always,
            })
            .verify(self.verify)
            .resume(self.resume)
            .keep_going(self.keep_going)
            .one_file_system(self.one_file_system)
            .follow(match (self.no_dereference, self.dereference) {
                (true, _) => Follow::None,
                (_, true) => Follow::All,
                _ => Follow::Named,
            })
            .exact_target(self.no_target_directory)
            .links(Arc::clone(links))
            .explain(self.explain || self.json)
            .tuning(Tuning { lanes: self.lanes.into(), ..Tuning::default() })
            .cancelled_by(Arc::clone(cancelled));
        if let Some(engine) = self.engine {
            copy = copy.engine(engine);
        }
        // Of a tree nobody knows before it is copied.
        let size_bytes = match std::fs::metadata(source) {
            Ok(metadata) if metadata.is_file() => metadata.len(),
            _ => u64::MAX,
        };
        let meter = copy.progress();
        let progress =
            Progress::following(&source.display().to_string(), "copying", size_bytes, move || {
                meter.arrived_bytes()
            });
        let copied = copy.run();
        drop(progress);
        Ok(copied?)
    }

    fn clean(&self, directory: &Path) -> Result<(), Failure> {
        let cleaned = evermap_transfer::clean(directory, self.parts)?;
        let mut output = Output::new();
        match self.json {
            true => output.json(&cleaned)?,
            false => {
                for path in &cleaned.removed {
                    output
                        .line(&format!("removed {}", output::plain(&path.display().to_string())))?;
                }
            }
        }
        for path in &cleaned.in_use {
            output::warn(&format!("{}: left alone, as a running copy has it", path.display()));
        }
        for path in &cleaned.parts {
            output::warn(&format!(
                "{}: left for `copy --resume`; --parts removes it",
                path.display()
            ));
        }
        output.finish()?;
        let mut failures = cleaned.errors.into_iter().map(Failure::from);
        let first = failures.next();
        failures.for_each(|failure| failure.say());
        first.map_or(Ok(()), Err)
    }

    fn tell(
        &self,
        source: &Path,
        path: &Path,
        report: &Report,
        output: &mut Output,
    ) -> Result<(), Failure> {
        if self.json {
            return output.json(&Told {
                source: source.to_string_lossy(),
                target: path.to_string_lossy(),
                report,
            });
        }
        for error in report.tree.iter().flat_map(|tree| &tree.errors) {
            output::warn(error);
        }
        for not in &report.not_kept {
            output::warn(&format!("{}: {} not kept: {}", not.path.display(), not.what, not.why));
        }
        if self.explain {
            explain(&source.display().to_string(), report, output)?;
        }
        Ok(())
    }
}
