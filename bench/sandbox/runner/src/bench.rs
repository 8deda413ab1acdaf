//! Runs a step of a workload, natively or as a guest, on the data sets and in a store.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::Outcome;
use crate::cost::Cost;
use crate::figures::Figures;
use crate::goals::Goals;
use crate::guest::{ACCOUNT, Account, CACHE, HOP};
use crate::memory;
use crate::options::Options;
use crate::process::{self, Ended};
use crate::raw::Raw;
use crate::sections::counts::Counts;

/// Environment that runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// Native process.
    Native,
    /// Sandbox whose WASI performs file operations in the calling thread.
    Guest,
    /// Sandbox with WASI's default, where other threads perform file operations.
    GuestHopping,
}

/// Measurements of one run of a step.
#[derive(Clone, Debug)]
pub struct Run {
    pub figures: Figures,
    /// Natively for the whole process, in a guest from its first instruction to its last.
    pub cost: Cost,
    /// Set for guests only.
    pub account: Option<Account>,
}

/// Store with its registry of addresses. Both are removed on drop.
pub struct Shelf {
    folder: TempDir,
}

impl Shelf {
    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Folder of the registry, which keeps the user's own registry unchanged.
    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }
}

/// State that every section receives.
pub struct Bench {
    pub options: Options,
    pub goals: Goals,
    pub raw: Raw,
    pub counts: Counts,
    itself: PathBuf,
}

impl Bench {
    pub fn new(options: Options) -> Outcome<Bench> {
        let raw = Raw::create(&options.results)?;
        let itself = std::env::current_exe()?;
        for folder in ["stores", "cache"] {
            std::fs::create_dir_all(options.folder.join(folder))?;
        }
        Ok(Bench { options, goals: Goals::default(), raw, counts: Counts::default(), itself })
    }

    /// Creates a store, outside the folder that guests may access.
    pub fn shelf(&self) -> Outcome<Shelf> {
        Ok(Shelf { folder: tempfile::tempdir_in(self.options.folder.join("stores"))? })
    }

    /// Returns a command that runs this program as a child, with the cache of compiled modules.
    pub fn child(&self, shelf: &Shelf) -> Command {
        let mut command = Command::new(&self.itself);
        command.arg("child").env(CACHE, self.cache()).env("XDG_STATE_HOME", shelf.state());
        command
    }

    fn cache(&self) -> PathBuf {
        self.options.folder.join("cache")
    }

    /// Runs `line`: a workload, a variant, a step, and options.
    pub fn run(&self, machine: Machine, line: &str, shelf: &Shelf) -> Outcome<Run> {
        if self.options.warm_memory {
            memory::warm()?;
        }
        match machine {
            Machine::Native => self.run_natively(line, shelf),
            Machine::Guest => self.run_guest(line, shelf, "0"),
            Machine::GuestHopping => self.run_guest(line, shelf, "1"),
        }
    }

    fn run_natively(&self, line: &str, shelf: &Shelf) -> Outcome<Run> {
        let mut command = Command::new(&self.options.workload);
        command.args(line.split(' ')).arg("--data").arg(&self.options.data);
        command.env("EVERMAP_STORE", shelf.store()).env("XDG_STATE_HOME", shelf.state());
        let ended = process::run(&mut command)?;
        Ok(Run { figures: Figures::read(&ended.output)?, cost: ended.cost, account: None })
    }

    fn run_guest(&self, line: &str, shelf: &Shelf, hop: &str) -> Outcome<Run> {
        let account = shelf.folder.path().join("account.json");
        let mut command = self.child(shelf);
        command.arg("guest").arg(&self.options.module).arg(&self.options.data);
        command.arg(shelf.store()).args(line.split(' ')).env(HOP, hop).env(ACCOUNT, &account);
        let Ended { output, .. } = process::run(&mut command)?;
        let account: Account = read_json(&account)?;
        Ok(Run { figures: Figures::read(&output)?, cost: account.cost, account: Some(account) })
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Outcome<T> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()).into())
}
