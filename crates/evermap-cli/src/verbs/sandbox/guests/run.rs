//! `evermap sandbox run`: runs a WebAssembly program.

use std::path::{Path, PathBuf};
use std::time::Duration;

use evermap_wasm::{
    ApplicationId, Code, End, Guest, GuestOptions, KeyRing, Report, SandboxOptions,
};

use super::watchdog::Watchdog;
use super::{Allowed, OUT_OF_TIME, STANDARD_INPUT, object_of, read_module};
use crate::failure::Failure;
use crate::output;

/// Run a WebAssembly program with persistent heaps
///
/// The program (a WASI command, built with `evermap-guest` or `nvheap.h`) opens objects of the
/// store by name and maps them into its memory. It sees the standard streams and the directories
/// named by --dir and --dir-write. It cannot see the store's files.
///
/// It runs as an application, which owns its objects. `sandbox grant` gives that application
/// further rights. The exit code is the program's; 134 if it trapped or reached a limit, 125 if it
/// could not be started.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap sandbox run guest_words.wasm -- to be or not to be
  evermap sandbox run guest_words.wasm --timeout 5 --dir ~/texts::/texts -- /texts/hamlet.txt")]
pub struct Run {
    /// The program, in WebAssembly's binary or text format: a regular file of up to 256 MiB, or `-`
    /// for the standard input (then name the application with --app)
    #[arg(value_name = "APP.wasm")]
    module: PathBuf,
    /// Application to run it as [default: the file's name without its extension]
    #[arg(long, value_name = "ID")]
    app: Option<String>,
    /// Set a right for this run only: NAME is an object of the application, or OWNER:NAME; LEVEL is
    /// none, snapshot, read or write
    #[arg(long, value_name = "NAME:LEVEL")]
    allow: Vec<Allowed>,
    /// Allow reading a directory, at another path in the program [default: the same]
    #[arg(long, value_name = "DIR[::PATH]")]
    dir: Vec<String>,
    /// Allow reading and writing a directory
    #[arg(long, value_name = "DIR[::PATH]")]
    dir_write: Vec<String>,
    /// Set a variable of its environment
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// End it after this many units of fuel, about one per instruction
    #[arg(long, value_name = "UNITS")]
    fuel: Option<u64>,
    /// End it after this many seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Limit its memories and tables together [default: 4096]. A program with objects starts with
    /// 1,281 MiB, 1,024 of them for the window, and does not start with less
    #[arg(long, value_name = "MIB")]
    memory: Option<usize>,
    /// A detached signature of the module: 64 bytes, Ed25519 of the SHA-256 of its bytes
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,
    /// Print its costs to stderr at the end: host calls, crossings, bytes, time
    #[arg(long)]
    report: bool,
    /// Its arguments
    #[arg(last = true, value_name = "ARGS", value_hint = clap::ValueHint::AnyPath)]
    arguments: Vec<String>,
}

impl Run {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        // Checked before the store and the application are created, so a mistake leaves neither.
        let id = self.application()?;
        let bytes = read_module(&self.module)?;
        let signature = self.signature()?;
        let options = self.options(&id)?;
        // Opening the sandbox installs the fault guard before it creates the engine.
        let sandbox = SandboxOptions::new().cache().fuel(self.fuel.is_some()).open(directory)?;
        let mut module = sandbox.compile(&self.module.display().to_string(), &bytes)?;
        if let Some(signature) = signature {
            module = module.signed(signature);
        }
        drop(bytes);
        let ring = KeyRing::of_store(sandbox.store().path());
        let key = ring.enter(sandbox.access(), &id)?;
        let mut application = sandbox.application(id.clone(), key)?;
        for (other, key) in ring.all()? {
            application = application.with_key_of(other, key);
        }
        let start = |time| Watchdog::start(self.module.clone(), time);
        let watchdog = self.time_max()?.map(start).transpose()?;
        let mut guest = sandbox.start(&module, &application, &options)?;
        let end = guest.run()?;
        drop(watchdog);
        let report = guest.report();
        if self.report {
            print_costs(&report);
        }
        if end != End::Exited(0) {
            print_refusals(&guest);
        }
        drop(guest);
        match end {
            End::Exited(0) => Ok(()),
            End::Exited(code) => Err(Failure::CommandEnded { code: code as u8 }),
            other => Err(Failure::GuestEnded { module: self.module.clone(), why: why(&other) }),
        }
    }

    fn application(&self) -> Result<ApplicationId, Failure> {
        if let Some(id) = &self.app {
            return Ok(id.parse()?);
        }
        if self.module == Path::new(STANDARD_INPUT) {
            return Err(Failure::Usage(
                "a module from the standard input has no name; set the application with --app ID"
                    .to_string(),
            ));
        }
        let stem = self.module.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        stem.parse().map_err(|_| {
            Failure::Usage(format!("`{stem}` is not a valid application id; set one with --app ID"))
        })
    }

    fn signature(&self) -> Result<Option<[u8; 64]>, Failure> {
        let Some(path) = &self.signature else { return Ok(None) };
        let signature = <[u8; 64]>::try_from(read_module(path)?).map_err(|bytes| {
            let (path, length) = (path.display(), bytes.len());
            Failure::Usage(format!(
                "{path} is not a signature: it has {length} bytes instead of 64"
            ))
        })?;
        Ok(Some(signature))
    }

    fn options(&self, id: &ApplicationId) -> Result<GuestOptions, Failure> {
        let name = self.module.file_name().map(|name| name.to_string_lossy().into_owned());
        let mut options = GuestOptions::new().inherit_stdio().argument(name.unwrap_or_default());
        for argument in &self.arguments {
            options = options.argument(argument);
        }
        for variable in &self.env {
            let (name, value) = variable.split_once('=').ok_or_else(|| {
                Failure::Usage(format!("`{variable}` does not set a variable; write NAME=VALUE"))
            })?;
            options = options.variable(name, value);
        }
        for (directories, writable) in [(&self.dir, false), (&self.dir_write, true)] {
            for directory in directories {
                let (host, guest) = directory.split_once("::").unwrap_or((directory, directory));
                options = options.preopen(host, guest, writable);
            }
        }
        for allowed in &self.allow {
            options = options.allow(object_of(id, &allowed.object)?, allowed.level);
        }
        if let Some(fuel) = self.fuel {
            options = options.fuel(fuel);
        }
        if let Some(time) = self.time_max()? {
            options = options.time_max(time);
        }
        if let Some(mib) = self.memory {
            options = options.memory_bytes_max(mib.saturating_mul(1 << 20));
        }
        Ok(options)
    }

    fn time_max(&self) -> Result<Option<Duration>, Failure> {
        let Some(seconds) = self.timeout else { return Ok(None) };
        let time = Duration::try_from_secs_f64(seconds);
        time.map(Some).map_err(|e| Failure::Usage(format!("--timeout {seconds}: {e}")))
    }
}

fn why(end: &End) -> String {
    match end {
        End::Trapped(why) => format!("it trapped: {why}"),
        End::Faulted { fault, window_offset } => format!(
            "a page of an object could not be accessed ({fault:?} at byte {window_offset:#x} of the window); check the store with `evermap store check`"
        ),
        End::OutOfFuel => "its fuel is used up; set more with --fuel".to_string(),
        End::OutOfTime => OUT_OF_TIME.to_string(),
        other => format!("{other:?}"),
    }
}

/// Prints the errors that a failed guest received, because the guest may not have printed them.
fn print_refusals(guest: &Guest) {
    let refused = guest.report().refused_growths;
    if refused > 0 {
        eprintln!(
            "evermap: the guest reached its limit of {} MiB of memories and tables ({refused} growths refused); raise it with --memory",
            guest.memory_bytes_max() >> 20,
        );
    }
    if let Some((Code::MemoryLayout, why)) = guest.last_refusal() {
        eprintln!("evermap: no object could be mapped: {why}");
    }
}

/// Prints the costs of a run.
fn print_costs(report: &Report) {
    let elapsed_ms = report.elapsed_ns as f64 / 1e6;
    eprintln!(
        "{} host calls ({} crossings): {} map, {} unmap, {} commit, {} stat, {} last_fault, {} WASI and others; {} refused",
        output::count(report.host_calls),
        output::count(report.crossings),
        report.map_calls,
        report.unmap_calls,
        report.commit_calls,
        report.stat_calls,
        report.last_fault_calls,
        report.other_calls,
        report.refused_calls,
    );
    eprintln!(
        "{} of objects mapped, {}, {} refused, {elapsed_ms:.1} ms",
        output::bytes(report.mapped_bytes),
        output::counted(report.commits, "commit"),
        output::counted(report.refused_growths, "growth"),
    );
}
