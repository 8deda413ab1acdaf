//! `evermap copy`: copies files by the fastest mechanism the kernel offers.

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

/// Copy files and directories by the fastest mechanism
///
/// The target's name appears when the copy is complete; until then an existing file stays. Holes,
/// owner, mode, times, ACLs and extended attributes are preserved as far as permitted. The
/// mechanism depends on file system, size, cached pages and durability. `--explain` shows the
/// choice and its reasons.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "evermap copy [OPTIONS] <SOURCE>... <DEST>\n       evermap copy --clean <DIR>"
)]
#[command(after_help = "\
Examples:
  evermap copy disk.img /mnt/backup --durability full --verify
  evermap copy photos /mnt/backup --explain")]
pub struct Copy {
    /// Files or directories to copy, then the target: a name, or a directory to copy into.
    /// `SOURCE/.` means the contents of SOURCE
    #[arg(required_unless_present = "clean", num_args = 2.., value_names = ["SOURCE", "DEST"])]
    paths: Vec<PathBuf>,
    /// Treat DEST as the copy's own name even if it is a directory; a source directory is merged
    /// into it
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// Copy symbolic links as links, including those named as SOURCE
    #[arg(short = 'P', long, overrides_with_all = ["follow_named", "dereference"])]
    no_dereference: bool,
    /// Follow symbolic links named as SOURCE, but none within a directory (default)
    #[arg(short = 'H', id = "follow_named", overrides_with_all = ["no_dereference", "dereference"])]
    follow_named: bool,
    /// Follow all symbolic links
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "follow_named"])]
    dereference: bool,
    /// Guarantee on return: `data` flushes the contents, `full` also the name
    #[arg(long, value_name = "LEVEL", default_value = "none")]
    durability: Level,
    /// Share blocks with the source if the file system supports it
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    reflink: When,
    /// Read the copy back from the disk and compare it with the source before publishing it
    #[arg(long)]
    verify: bool,
    /// Keep an interrupted copy, and continue an existing one
    #[arg(long)]
    resume: bool,
    /// Publish a directory even if some entries could not be copied, and list these
    #[arg(long)]
    keep_going: bool,
    /// Skip directory contents on other file systems
    #[arg(long)]
    one_file_system: bool,
    /// Use only this engine
    #[arg(long, value_name = "NAME", value_parser = engine)]
    engine: Option<EngineKind>,
    /// Number of parallel pipes for `--engine splice`
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=64))]
    lanes: u8,
    /// Remove the remains of killed copies in this directory and below; running copies are not
    /// affected
    #[arg(long, value_name = "DIR", conflicts_with = "paths")]
    clean: Option<PathBuf>,
    /// With --clean, also remove copies that --resume could continue
    #[arg(long, requires = "clean")]
    parts: bool,
    /// Show the chosen engine, the reasons, and the cost
    #[arg(long)]
    explain: bool,
    /// Show the same as JSON, one object per source
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum When {
    Auto,
    Never,
    Always,
}

/// One line of `--json`: the report of one source.
#[derive(Serialize)]
struct Line<'a> {
    source: Cow<'a, str>,
    /// The path of the copy.
    target: Cow<'a, str>,
    #[serde(flatten)]
    report: &'a Report,
}

/// Parses an engine's name.
pub fn engine(name: &str) -> Result<EngineKind, String> {
    EngineKind::from_name(name).ok_or_else(|| {
        let names: Vec<_> = EngineKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("unknown engine; choose one of {}", names.join(", "))
    })
}

impl Copy {
    pub fn run(&self) -> Result<(), Failure> {
        if let Some(directory) = &self.clean {
            return self.clean(directory);
        }
        let Some((target, sources)) = self.paths.split_last() else {
            return Err(Failure::Usage("give a source and a target".into()));
        };
        if sources.len() > 1 && self.no_target_directory {
            return Err(Failure::Usage(
                "-T allows only one source, because DEST is the name of its copy".into(),
            ));
        }
        if sources.len() > 1 && !target.is_dir() {
            return Err(Failure::Usage(format!(
                "{} is not a directory: several sources need a target directory",
                target.display()
            )));
        }
        let cancelled = evermap_transfer::cancelled_by_signals();
        let mut output = Output::beside(Some(target));
        let links = Arc::new(SharedLinks::default());
        // A failure does not stop the remaining copies. The first failure determines the exit code.
        let mut failed = None;
        for source in sources {
            // Computed before the copy exists: `path_of_copy` would take a new directory for a
            // parent.
            let path = self.path_of_copy(source, target);
            match self.copy(source, target, &path, &links, &cancelled) {
                Ok(report) => {
                    self.print(source, &path, &report, &mut output)?;
                    if let Some(tree) = report.tree.as_ref().filter(|tree| tree.errors_total > 0) {
                        failed.get_or_insert(Failure::NotAllCopied { count: tree.errors_total });
                    }
                }
                Err(failure) if failed.is_none() && !matches!(failure.exit_code(), 130) => {
                    failed = Some(failure)
                }
                Err(failure) if failure.exit_code() == 130 => return Err(failure),
                Err(failure) => failure.print(),
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
        let metadata = std::fs::metadata(source);
        let is_directory = metadata.as_ref().is_ok_and(std::fs::Metadata::is_dir);
        let is_tree = is_directory && !(self.no_dereference && source.is_symlink());
        if is_tree && std::fs::metadata(path).is_ok_and(|found| !found.is_dir()) {
            return Err(Failure::TargetNotDirectory { from: source.into(), to: path.into() });
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
        // The size of a tree is unknown before it is copied.
        let size_bytes = match metadata {
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
            output::warn(&format!("{}: skipped because a running copy uses it", path.display()));
        }
        for path in &cleaned.parts {
            output::warn(&format!(
                "{}: kept for `copy --resume`; use --parts to remove it",
                path.display()
            ));
        }
        output.finish()?;
        let mut failures = cleaned.errors.into_iter().map(Failure::from);
        let first = failures.next();
        failures.for_each(|failure| failure.print());
        first.map_or(Ok(()), Err)
    }

    fn print(
        &self,
        source: &Path,
        path: &Path,
        report: &Report,
        output: &mut Output,
    ) -> Result<(), Failure> {
        if self.json {
            return output.json(&Line {
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
