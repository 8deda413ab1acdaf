//! Runs a step of a workload, natively or as a guest, on the data sets and in a store.

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::machine::{self, Fact, Remarks};
use harness::options::Options;
use harness::running::{Ended, Running};
use harness::{Outcome, memory};
use serde_json::Value;
use tempfile::TempDir;

use crate::cost::{Cost, Whose};
use crate::figures::Figures;
use crate::guest::{ACCOUNT, Account, CACHE, HOP};
use crate::sections::counts::Counts;

/// Memory that a step uses for files, heaps and other data together.
const STEP_BYTES: u64 = 150 << 20;
/// Size of the data sets of a quick run.
const QUICK_SCALE: &str = "0.02";
const WORDNET: &str = "/usr/share/wordnet";

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

impl Run {
    /// Returns all figures and counts by name.
    pub fn all(&self) -> serde_json::Map<String, Value> {
        let mut all: serde_json::Map<String, Value> = serde_json::Map::new();
        for (what, value) in self.figures.all() {
            let number = value.parse::<f64>().ok().and_then(serde_json::Number::from_f64);
            all.insert(what.into(), number.map_or_else(|| value.into(), Value::Number));
        }
        let counts = [
            ("minor_faults", self.cost.minor_faults),
            ("major_faults", self.cost.major_faults),
            ("written_bytes", self.cost.written_bytes),
            ("dirtied_bytes", self.cost.dirtied_bytes),
        ];
        let account = self.account.iter().flat_map(Account::all);
        all.extend(
            counts.into_iter().chain(account).map(|(what, count)| (what.into(), count.into())),
        );
        all
    }
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

/// Bench that a section receives.
pub type Bench = harness::bench::Bench<Own>;

pub struct Own {
    pub counts: Counts,
    /// Folder of stores and compiled modules. The modules stay for the next run.
    folder: PathBuf,
    /// Folder of the data sets, which guests may access.
    pub data: PathBuf,
    /// Native program.
    workload: PathBuf,
    /// The program's guest module.
    module: PathBuf,
    itself: PathBuf,
    warm_memory: bool,
}

/// Makes missing data sets, and prints the description of the machine.
pub fn start(options: Options) -> Outcome<Bench> {
    let built = |name: &str| -> Outcome<PathBuf> {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.ok_or_else(|| format!("{name} is not set; `bench sandbox` sets it").into())
    };
    let scale = options.scaled("1", QUICK_SCALE);
    let own = Own {
        counts: Counts::default(),
        folder: options.folder.clone(),
        // Another scale is another data set.
        data: options.folder.join(format!("data-{scale}")),
        workload: built("EVERMAP_BENCH_WORKLOAD")?,
        module: built("EVERMAP_BENCH_MODULE")?,
        itself: options.program.clone(),
        warm_memory: options.warm_memory,
    };
    for folder in ["stores", "cache"] {
        std::fs::create_dir_all(own.folder.join(folder))?;
    }
    generate(&own, scale)?;
    let mut bench = Bench::new(options, own)?;
    let cached = "warm: programs, compiled modules, data sets and recently written files are in the page \
                  cache. Each step is a new process with nothing mapped";
    let notes = [cached.to_string()].into_iter();
    let notes = notes.chain(machine::turns(&bench, "a new process")).collect();
    let module = bench.own.module.display().to_string();
    let facts = [Fact { key: "module", name: "guest", value: module }];
    machine::describe(&mut bench, &Remarks { facts: &facts, notes, missing: &[] })?;
    Ok(bench)
}

/// Makes the data sets that are not there.
fn generate(own: &Own, scale: &str) -> Outcome {
    let wordnet = std::env::var_os("EVERMAP_WORDNET").unwrap_or(WORDNET.into());
    let mut sets = vec!["cache", "mail"];
    match Path::new(&wordnet).join("index.noun").exists() {
        true => sets.splice(0..0, ["words", "text"]).for_each(drop),
        false => eprintln!(
            "WordNet is not installed: spell-check is skipped. For Debian: apt-get install wordnet-base"
        ),
    }
    std::fs::create_dir_all(&own.data)?;
    for set in sets {
        // The mark is written last, so that an incomplete set is made again.
        let made = own.data.join(format!(".made-{set}"));
        if made.exists() {
            continue;
        }
        let mut command = Command::new(own.workload.with_file_name("generate"));
        command.arg(set).arg("--data").arg(&own.data).args(["--scale", scale]);
        command.arg("--wordnet").arg(&wordnet);
        eprint!("{}", Running::start(command)?.finish()?.output);
        std::fs::write(made, "")?;
    }
    Ok(())
}

/// Process that ended, with the cost of its work.
pub struct Measured {
    pub ended: Ended,
    pub cost: Cost,
}

/// Runs a process, which must be successful. No other child may end during the call.
pub fn run(command: Command) -> Outcome<Measured> {
    let before = Cost::until_now(Whose::Children)?;
    let ended = Running::start(command)?.finish()?;
    Ok(Measured { ended, cost: Cost::until_now(Whose::Children)?.since(before) })
}

impl Own {
    /// Creates a store, outside the folder that guests may access.
    pub fn shelf(&self) -> Outcome<Shelf> {
        Ok(Shelf { folder: tempfile::tempdir_in(self.folder.join("stores"))? })
    }

    /// Returns a command that runs this program as a child, with the cache of compiled modules.
    pub fn child(&self, shelf: &Shelf) -> Command {
        let mut command = Command::new(&self.itself);
        command.arg("child").env(CACHE, self.cache()).env("XDG_STATE_HOME", shelf.state());
        command
    }

    fn cache(&self) -> PathBuf {
        self.folder.join("cache")
    }

    /// Runs `line`: a workload, a variant, a step, and options.
    pub fn run(&self, machine: Machine, line: &str, shelf: &Shelf) -> Outcome<Run> {
        if self.warm_memory {
            memory::warm(STEP_BYTES)?;
        }
        match machine {
            Machine::Native => self.run_natively(line, shelf),
            Machine::Guest => self.run_guest(line, shelf, "0"),
            Machine::GuestHopping => self.run_guest(line, shelf, "1"),
        }
    }

    fn run_natively(&self, line: &str, shelf: &Shelf) -> Outcome<Run> {
        let mut command = Command::new(&self.workload);
        command.args(line.split(' ')).arg("--data").arg(&self.data);
        command.env("EVERMAP_STORE", shelf.store()).env("XDG_STATE_HOME", shelf.state());
        let Measured { ended, cost } = run(command)?;
        Ok(Run { figures: Figures::read(&ended.output)?, cost, account: None })
    }

    fn run_guest(&self, line: &str, shelf: &Shelf, hop: &str) -> Outcome<Run> {
        let account = shelf.folder.path().join("account.json");
        let mut command = self.child(shelf);
        command.arg("guest").arg(&self.module).arg(&self.data);
        command.arg(shelf.store()).args(line.split(' ')).env(HOP, hop).env(ACCOUNT, &account);
        let output = Running::start(command)?.finish()?.output;
        let account: Account = read_json(&account)?;
        Ok(Run { figures: Figures::read(&output)?, cost: account.cost, account: Some(account) })
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Outcome<T> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()).into())
}
