//! State that every section receives, and the work before the first and after the last section.

use std::cell::LazyCell;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::counting::Counter;
use crate::files::Folder;
use crate::goals::Goals;
use crate::guard::Guard;
use crate::options::Options;
use crate::raw::Raw;
use crate::volumes::{self, Volume, Volumes};
use crate::{Outcome, caches, ends, quiet};

/// Name of a section and the function that runs it.
pub type Section<Own> = (&'static str, fn(&mut Bench<Own>) -> Outcome);

/// A run of an area.
pub struct Bench<Own> {
    /// State of this area alone. It may own volumes, so it is declared, and dropped,
    /// before `volumes`.
    pub own: Own,
    pub options: Options,
    pub raw: Raw,
    pub goals: Goals,
    pub counter: LazyCell<Counter>,
    /// True if this process can empty the page cache.
    pub can_drop: bool,
    pub can_mount: bool,
    pub volumes: Volumes,
    /// Declared after everything that may be mounted in it: fields are dropped in this order.
    work: TempDir,
    pub guard: Guard,
}

impl<Own> Bench<Own> {
    /// Prepares a run: signal flags, the guard and a working folder. From here on every end of
    /// the process cleans up.
    pub fn new(options: Options, own: Own) -> Outcome<Bench<Own>> {
        ends::note_signals()?;
        let mut guard = Guard::start(&options.program)?;
        std::fs::create_dir_all(&options.folder)?;
        let folder = options.folder.canonicalize()?;
        let work = tempfile::Builder::new().prefix(volumes::PREFIX).tempdir_in(&folder)?;
        guard.remove(work.path())?;
        // Reports and other small files go into the working folder, too. Only the first run
        // of a process can set this.
        let _ = tempfile::env::override_temp_dir(work.path());
        let can_mount = ends::private_mounts() && rustix::process::geteuid().is_root();
        Ok(Bench {
            own,
            raw: Raw::create(options.json.as_deref())?,
            goals: Goals::default(),
            counter: LazyCell::new(Counter::find),
            can_drop: caches::can_drop(),
            can_mount,
            volumes: Volumes::new(work.path(), can_mount),
            work,
            guard,
            options,
        })
    }

    /// Runs the selected sections, each in a quiet moment. Then prints the results of all goals,
    /// and writes them into the raw figures.
    pub fn run(mut self, sections: &[Section<Own>]) -> Outcome {
        let outcome = self.run_sections(sections);
        self.goals.print();
        self.goals.write(&mut self.raw)?;
        outcome
    }

    fn run_sections(&mut self, sections: &[Section<Own>]) -> Outcome {
        for (name, report) in sections {
            if self.options.wants(name) {
                quiet::wait();
                println!("\n## {name}\n");
                report(self)?;
            }
        }
        Ok(())
    }

    /// Creates a file system to measure on. Prints the reason and returns `None` if that fails.
    pub fn volume(&mut self, name: &str) -> Option<Volume> {
        let guard = &mut self.guard;
        let volume = self.volumes.create(name).and_then(|volume| {
            // The volume may be in another folder, such as `/dev/shm`.
            guard.remove(volume.folder())?;
            Ok(volume)
        });
        skip_on_error(name, volume)
    }

    /// Creates a folder on the measured disk for files that no volume holds.
    pub fn folder(&self, name: &str) -> Outcome<PathBuf> {
        let folder = self.work.path().join(name);
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Returns the path of the `evermap` command, or prints that the command is missing.
    pub fn evermap(&self) -> Option<PathBuf> {
        if self.options.evermap.is_none() {
            println!(
                "**Evermap itself is not measured here** (no `--evermap`, no EVERMAP_COMMAND).\n"
            );
        }
        self.options.evermap.clone()
    }

    /// Creates a folder on the measured disk that is removed when it is dropped.
    pub fn temporary(&self, name: &str) -> Outcome<Folder> {
        Folder::at(self.work.path().join(name))
    }

    /// Writes a plot into the folder for images.
    pub fn draw(&self, name: &str, svg: &str) -> Outcome {
        std::fs::create_dir_all(&self.options.images)?;
        let path = self.options.images.join(name);
        std::fs::write(&path, svg)?;
        println!("\nPlot: `{}`", path.file_name().unwrap_or_default().to_string_lossy());
        Ok(())
    }
}

/// Returns the value, or prints that `name` is skipped and why.
pub fn skip_on_error<T>(name: &str, found: Outcome<T>) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(reason) => {
            println!("**Skipped: {name}**: {reason}\n");
            eprintln!("skipped: {name}: {reason}");
            None
        }
    }
}
