//! What every section is given, and what is done before the first and after the last.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::counting::Counter;
use crate::goals::Goals;
use crate::grounds::{self, Ground, Grounds};
use crate::guard::Guard;
use crate::options::Options;
use crate::raw::Raw;
use crate::{Outcome, caches, ends, quiet};

/// A name, and what answers its question.
pub type Section<Own> = (&'static str, fn(&mut Bench<Own>) -> Outcome);

/// A run of a benchmark.
pub struct Bench<Own> {
    /// What only this benchmark has. It may have grounds, so it goes before what they are made of.
    pub own: Own,
    pub options: Options,
    pub raw: Raw,
    pub goals: Goals,
    pub counter: Counter,
    /// Can the page cache be emptied?
    pub can_drop: bool,
    pub can_mount: bool,
    pub grounds: Grounds,
    /// After everything in it that is mounted: fields go in this order.
    work: TempDir,
    pub guard: Guard,
}

impl<Own> Bench<Own> {
    /// From now on, nothing stays behind.
    pub fn new(options: Options, own: Own) -> Outcome<Bench<Own>> {
        ends::note_signals()?;
        let mut guard = Guard::start(&options.program)?;
        std::fs::create_dir_all(&options.folder)?;
        let folder = options.folder.canonicalize()?;
        let work = tempfile::Builder::new().prefix(grounds::PREFIX).tempdir_in(&folder)?;
        guard.remove(work.path())?;
        // Reports and other small files go with it, too. Only the first run of a process can say so.
        let _ = tempfile::env::override_temp_dir(work.path());
        let can_mount = ends::private_mounts() && rustix::process::geteuid().is_root();
        Ok(Bench {
            own,
            raw: Raw::create(options.json.as_deref())?,
            goals: Goals::default(),
            counter: Counter::find(),
            can_drop: caches::can_drop(),
            can_mount,
            grounds: Grounds::new(work.path(), can_mount),
            work,
            guard,
            options,
        })
    }

    /// Runs the sections that are wanted, each in a quiet moment, and writes down what became of goals.
    pub fn run(mut self, sections: &[Section<Own>]) -> Outcome {
        for (name, report) in sections {
            if self.options.wants(name) {
                quiet::wait();
                println!("\n## {name}\n");
                report(&mut self)?;
            }
        }
        self.goals.write(&mut self.raw)
    }

    /// A file system to measure on, or a word why there is none.
    pub fn ground(&mut self, name: &str) -> Option<Ground> {
        let guard = &mut self.guard;
        let ground = self.grounds.new_ground(name).and_then(|ground| {
            // It may be in a folder of its own.
            guard.remove(ground.folder())?;
            Ok(ground)
        });
        said(name, ground)
    }

    /// A folder on the disk for what does not fit elsewhere.
    pub fn folder(&self, name: &str) -> Outcome<PathBuf> {
        let folder = self.work.path().join(name);
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Where this benchmark's own small programs are.
    pub fn own_folder(&self) -> &Path {
        self.options.own_folder()
    }

    /// The command, or a word about its absence.
    pub fn evermap(&self) -> Option<PathBuf> {
        if self.options.evermap.is_none() {
            println!(
                "**Evermap itself is not measured here** (no `--evermap`, no EVERMAP_COMMAND).\n"
            );
        }
        self.options.evermap.clone()
    }

    /// A plot, as a file in the folder for them.
    pub fn draw(&self, name: &str, svg: &str) -> Outcome {
        std::fs::create_dir_all(&self.options.images)?;
        let path = self.options.images.join(name);
        std::fs::write(&path, svg)?;
        println!("\nPlot: `{}`", path.file_name().unwrap_or_default().to_string_lossy());
        Ok(())
    }
}

/// What there is, or a visible word that there is none.
pub fn said<T>(name: &str, found: Outcome<T>) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(reason) => {
            println!("**Skipped: {name}**: {reason}\n");
            eprintln!("skipped: {name}: {reason}");
            None
        }
    }
}
