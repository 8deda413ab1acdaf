//! `evermap sandbox run`: one run of a WebAssembly program.

use std::path::{Path, PathBuf};
use std::time::Duration;

use evermap_wasm::{
    ApplicationId, Code, End, Guest, GuestOptions, KeyRing, Report, SandboxOptions,
};

use super::watchdog::Watchdog;
use super::{Allowed, OUT_OF_TIME, STANDARD_INPUT, object_of, read_module};
use crate::failure::Failure;
use crate::output;

/// Run a WebAssembly program whose heaps last
///
/// The program (a WASI command, built with `evermap-guest` or `nvheap.h`) opens objects of the store by
/// name and has them in its own memory. It sees the standard streams, and of the file system what --dir and
/// --dir-write name; the store's own files it cannot see.
///
/// It is run as an application, which its objects belong to: `sandbox grant` says what else that may
/// use. The exit code is the program's own; 134 when it trapped or met its limits, 125 when it could not be
/// started.
#[derive(Debug, clap::Args)]
pub struct Run {
    /// The program, in WebAssembly's binary or text format: a regular file of up to 256 MiB, or `-` for
    /// the standard input (then name the application with --app)
    #[arg(value_name = "APP.wasm")]
    module: PathBuf,
    /// The application to run it as [default: the file's name without its ending]
    #[arg(long, value_name = "ID")]
    app: Option<String>,
    /// Set a right for this run alone: NAME is an object of the application's, or OWNER:NAME; LEVEL is
    /// none, snapshot, read or write
    #[arg(long, value_name = "NAME:LEVEL")]
    allow: Vec<Allowed>,
    /// Let it read a directory, at a path of its own [default: the same]
    #[arg(long, value_name = "DIR[::PATH]")]
    dir: Vec<String>,
    /// Let it read and write a directory
    #[arg(long, value_name = "DIR[::PATH]")]
    dir_write: Vec<String>,
    /// Set a variable of its environment
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// End it after so many units of fuel, about one an instruction
    #[arg(long, value_name = "UNITS")]
    fuel: Option<u64>,
    /// End it after so many seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Bound its memories and tables together [default: 4096]. A program with objects begins with 1,281
    /// MiB, of which the window is 1,024, and does not start with less
    #[arg(long, value_name = "MIB")]
    memory: Option<usize>,
    /// A detached signature of the module: 64 bytes, Ed25519 of the SHA-256 of its bytes
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,
    /// Say on stderr at its end what it cost: calls of the host, crossings, bytes, time
    #[arg(long)]
    report: bool,
    /// Its arguments
    #[arg(last = true, value_name = "ARGS")]
    arguments: Vec<String>,
}

impl Run {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        // Before the store and the application are made: a mistake leaves neither behind.
        let id = self.application()?;
        let bytes = read_module(&self.module)?;
        let signature = self.signature()?;
        let options = self.options(&id)?;
        // The guard comes before the engine; opening the sandbox sees to that.
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
            tell(&report);
        }
        if end != End::Exited(0) {
            tell_of_refusals(&guest);
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
                "a module from the standard input has no name; name its application with --app ID"
                    .to_string(),
            ));
        }
        let stem = self.module.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        stem.parse().map_err(|_| {
            Failure::Usage(format!("`{stem}` cannot name an application; give one with --app ID"))
        })
    }

    fn signature(&self) -> Result<Option<[u8; 64]>, Failure> {
        let Some(path) = &self.signature else { return Ok(None) };
        let signature = <[u8; 64]>::try_from(read_module(path)?).map_err(|bytes| {
            let (path, length) = (path.display(), bytes.len());
            Failure::Usage(format!("{path} has {length} bytes, and a signature has 64"))
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
                Failure::Usage(format!("`{variable}` sets no variable; write NAME=VALUE"))
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
            "an object's memory failed it ({fault:?} at byte {window_offset:#x} of the window); `evermap check` looks at the store"
        ),
        End::OutOfFuel => "its fuel is used up; give more with --fuel".to_string(),
        End::OutOfTime => OUT_OF_TIME.to_string(),
        other => format!("{other:?}"),
    }
}

/// Reports refusals to a guest that failed, because the guest may not have said why it did.
fn tell_of_refusals(guest: &Guest) {
    let refused = guest.report().refused_growths;
    if refused > 0 {
        eprintln!(
            "evermap: the guest was refused more than its {} MiB of memories and tables ({refused} times); give more with --memory",
            guest.memory_bytes_max() >> 20,
        );
    }
    if let Some((Code::MemoryLayout, why)) = guest.last_refusal() {
        eprintln!("evermap: no object could be mapped: {why}");
    }
}

/// What a run cost, for people.
fn tell(report: &Report) {
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
        "{} of objects mapped, {} commits, {} growths refused, {elapsed_ms:.1} ms",
        output::bytes(report.mapped_bytes),
        report.commits,
        report.refused_growths,
    );
}
