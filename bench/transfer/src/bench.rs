//! What every section is given, and what is done before the first and after the last.

use std::path::{Path, PathBuf};

use common::Outcome;
use common::counting::Counter;
use common::goals::Goals;
use common::grounds::{self, Ground, Grounds};
use common::guard::Guard;
use common::raw::Raw;
use common::{caches, ends};
use tempfile::TempDir;

use crate::compete::Standings;
use crate::machine;
use crate::options::Options;
use crate::subjects::{self, Subject};

pub struct Bench {
    pub options: Options,
    pub raw: Raw,
    pub goals: Goals,
    pub counter: Counter,
    /// Can the page cache be emptied?
    pub can_drop: bool,
    /// What `files` measured, for `goals`.
    pub standings: Vec<Standings>,
    pub peers: Vec<Subject>,
    pub grounds: Grounds,
    /// After everything in it that is mounted: fields go in this order.
    work: TempDir,
    pub guard: Guard,
}

impl Bench {
    pub fn new(options: Options) -> Outcome<Bench> {
        ends::note_signals()?;
        let mut guard = Guard::start(&options.program)?;
        std::fs::create_dir_all(&options.folder)?;
        let folder = options.folder.canonicalize()?;
        let work = tempfile::Builder::new().prefix(grounds::PREFIX).tempdir_in(&folder)?;
        guard.remove(work.path())?;
        // Reports and other small files go with it, too. Only the first run of a process can say so.
        let _ = tempfile::env::override_temp_dir(work.path());
        let can_mount = ends::private_mounts() && rustix::process::geteuid().is_root();
        let grounds = Grounds::new(work.path(), can_mount);
        let (peers, missing) = subjects::find_peers(own_folder(&options));
        let peers = peers.into_iter().filter(|peer| options.wants_subject(&peer.name)).collect();
        let mut raw = Raw::create(options.json.as_deref())?;
        let bench = Bench {
            counter: Counter::find(),
            can_drop: caches::can_drop(),
            goals: Goals::default(),
            standings: Vec::new(),
            peers,
            grounds,
            work,
            guard,
            raw: Raw::default(),
            options,
        };
        raw.write(&machine::describe(&bench, &missing, can_mount)?)?;
        Ok(Bench { raw, ..bench })
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
        own_folder(&self.options)
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

    /// Evermap with these engines, as far as they are wanted, and the peers.
    pub fn everybody(&self) -> Vec<Subject> {
        let engines = self.options.evermap.as_deref().map(subjects::engines).unwrap_or_default();
        let wanted =
            engines.into_iter().filter(|subject| self.options.wants_subject(&subject.name));
        wanted.chain(self.peers.iter().cloned()).collect()
    }

    /// A plot, as a file in the folder for them.
    pub fn draw(&self, name: &str, svg: &str) -> Outcome {
        std::fs::create_dir_all(&self.options.images)?;
        let path = self.options.images.join(name);
        std::fs::write(&path, svg)?;
        println!("\nPlot: `{}`", path.file_name().unwrap_or_default().to_string_lossy());
        Ok(())
    }

    pub fn finish(mut self) -> Outcome {
        self.goals.write(&mut self.raw)
    }
}

fn own_folder(options: &Options) -> &Path {
    options.program.parent().unwrap_or(Path::new("."))
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
