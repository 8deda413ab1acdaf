//! Failures of the command: one message and one exit code each.
//!
//! The library's errors contain their own remedies. Where they name Rust functions, `messages`
//! names options and verbs of the command instead. Exit codes (`codes`) are part of the interface:
//! `--help` and `docs/cli.md` list them, and each code stands for one cause.

mod codes;
mod messages;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use evermap::{Error, tools};
use evermap_dom::{InvalidDocument, ParseError, ParseErrorKind, SelectorError};

use crate::kinds::NonMarkup;
use crate::text::plain;

pub use messages::parent_directory;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// `query` found nothing. Only the exit code reports it; no message is printed.
    #[error("nothing matched")]
    NoMatch,
    #[error("{0}")]
    Usage(String),
    /// A verb of a feature that this build lacks.
    #[error(
        "this build has no `{verb}`: build it with `cargo install --locked --path crates/evermap-cli \
         --features {feature}`, or try it with `make {feature}`"
    )]
    NotBuilt { verb: String, feature: &'static str },
    #[error("cannot find your data directory: set HOME or EVERMAP_STORE, or use `--store`")]
    NoHome,
    #[error("{}", messages::selector(.0))]
    Selector(#[from] SelectorError),
    #[error("{}", messages::store(.0))]
    Store(#[from] Error),
    #[error("{}", messages::tools(.0))]
    Tools(tools::Error),
    #[error("object `{name}`: {source}")]
    Document { name: String, source: InvalidDocument },
    #[error("cannot read {}: {}", path.display(), messages::read(source))]
    Source { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {}", path.display(), messages::write(path, source))]
    Target { path: PathBuf, source: io::Error },
    /// `audit --pid` names a process that does not exist.
    #[error(
        "no process {id}; give `--pid` the id of a running process that uses the object, or leave `--pid` out"
    )]
    NoProcess { id: u32 },
    /// `audit --pid` may not read the process's memory map.
    #[error(
        "cannot read the memory map of process {id}: {why}; run as its user or as root, or leave `--pid` out"
    )]
    ProcessDenied { id: u32, why: String },
    /// `restore` cannot read its source as a backup.
    #[error("no backup at {}: {why}; name a directory that `evermap store backup DEST` made", path.display())]
    NoBackup { path: PathBuf, why: String },
    /// `import` cannot read its source as an export.
    #[error("{} is not an Evermap file: {found}; pass what `evermap store export` wrote", path.display())]
    NotAnExport { path: PathBuf, found: String },
    #[error("cannot parse {}: {source}", path.display())]
    Parse { path: PathBuf, source: Box<ParseError> },
    /// A source that is certainly neither HTML nor XML.
    #[error(
        "cannot parse {}: it is {}, not HTML or XML; {}, or use `--html` or `--xml` to parse it anyway",
        path.display(), format.description, format.remedy
    )]
    NotMarkup { path: PathBuf, format: NonMarkup },
    #[error(
        "cannot parse {}: it is longer than {} MiB; raise the limit with `--limit MIB`",
        path.display(), bytes_max >> 20
    )]
    TooLong { path: PathBuf, bytes_max: u64 },
    /// `parse --keep-going` skipped files, and has reported each.
    #[error("{count} of {files} files were not parsed; the others are stored")]
    NotAllParsed { count: usize, files: usize, code: u8 },
    #[error(
        "object `{name}` is not a document; list the documents with `evermap ls --long`, or show its type with `evermap info`"
    )]
    NotADocument { name: String },
    /// The name belongs to a document that was made from another source.
    #[error(
        "document `{name}` was made from {}; rename it with `evermap mv {name} NAME`, give the new one another name with `--name`, or replace it with `--force`",
        if source_path == "-" { "standard input" } else { source_path }
    )]
    NameOfOtherSource { name: String, source_path: String },
    /// The source of a document has changed or is missing, and `--stale fail` was given.
    #[error(
        "document `{name}`: {what}; {}use the stored document with `--stale use`",
        if *is_there { "parse the source again with `--stale refresh`, or " } else { "" }
    )]
    Stale { name: String, what: String, is_there: bool },
    /// `mv` of a guest object.
    #[error(
        "cannot rename `{name}`: it is a guest object, and the guest finds it and its rights by this name; to copy it, copy the store with `evermap store backup`"
    )]
    GuestName { name: String },
    /// `copy` of a directory onto a file.
    #[error(
        "cannot copy directory {} onto {}, which is not a directory; name another target, or remove that file first",
        from.display(), to.display()
    )]
    TargetNotDirectory { from: PathBuf, to: PathBuf },
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// `check`, `audit` or `backup` found damage, and has printed it.
    #[error("{0}")]
    DamageFound(String),
    #[error(
        "{} already exists; replace a store with `--force`, or name another place with `--store`",
        path.display()
    )]
    StoreExists { path: PathBuf },
    #[error(
        "file {} already exists; replace it with `--force`, or name another file",
        path.display()
    )]
    FileExists { path: PathBuf },
    /// A result would be written into the store's directory.
    #[error(
        "cannot write {}: it is inside store {}, and could replace a file of the store; name a file elsewhere",
        path.display(), store.display()
    )]
    InsideStore { path: PathBuf, store: PathBuf },
    #[cfg(feature = "view")]
    #[error("{}", messages::page(.0))]
    Page(#[from] evermap_view::ViewError),
    /// `prefetch` did not build all pages, and has reported each failure.
    #[cfg(feature = "view")]
    #[error("{failed} of {pages} pages were not built")]
    NotPrefetched { failed: usize, pages: usize },
    /// `load run` found no library to preload.
    #[error(
        "no preload library found (looked for {}); build it with `cargo build --release -p evermap-load-shim`, \
         install it with `make install`, or set EVERMAP_LOAD_SHIM to its path",
        looked.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NoShim { looked: Vec<PathBuf> },
    /// `sandbox exec` or `load run` did not find its command.
    #[error("command `{}` not found: give its path, or add its directory to PATH", name.display())]
    NoCommand { name: OsString },
    #[error("cannot start {}: {}", program.display(), messages::start(source))]
    NotStarted { program: PathBuf, source: io::Error },
    /// The command ran and ended with this code. No message is printed.
    #[error("the command exited with {code}")]
    CommandEnded { code: u8 },
    /// The program of `sandbox run` trapped, or reached a limit.
    #[cfg(feature = "sandbox")]
    #[error("{} ended: {why}", module.display())]
    GuestEnded { module: PathBuf, why: String },
    #[cfg(feature = "sandbox")]
    #[error("{}", messages::sandbox(.0))]
    Sandbox(#[from] evermap_wasm::Error),
    /// `copy --keep-going` skipped entries, and has reported each.
    #[error("{count} entries were not copied; the others were")]
    NotAllCopied { count: u64 },
    #[error("{}", messages::transfer(.0))]
    Transfer(#[from] evermap_transfer::Error),
    #[error(transparent)]
    Load(#[from] evermap_load::Error),
    #[error(transparent)]
    Trace(#[from] evermap_trace::Error),
    #[error(transparent)]
    Tier(#[from] evermap_lane::tier::Error),
    #[error(transparent)]
    Lane(#[from] evermap_lane::Error),
    /// `lane run` could not make the lane, or not run its program to the end.
    #[error("no lane: {0}")]
    LaneRefused(evermap_lane::Error),
    /// `lane run` could not show its program the files of the tier.
    #[error("no lane: {0}")]
    NoTier(evermap_lane::tier::Error),
    #[error(transparent)]
    Simulation(#[from] evermap_simulate::Error),
    /// An error in a file with a profile or targets.
    #[error("{}: {source}", path.display())]
    InFile { path: PathBuf, source: Box<evermap_simulate::Error> },
    #[error("cannot confine the command, so nothing was started: {0}")]
    Wall(#[from] evermap_compartment::Error),
    /// `lane check` found no usable lane, and has printed why.
    #[error("no lane with SCHED_FIFO is possible here: see `core`, `affinity` and `fifo` above")]
    NoLane,
    /// A benchmark cannot start or read another process of this command, or its files.
    #[error("{what}: {source}")]
    Measurement { what: String, source: io::Error },
    /// A process of `demo` failed.
    #[error("the demo failed: {why}")]
    Demo { why: String, code: u8 },
}

impl From<tools::Error> for Failure {
    fn from(error: tools::Error) -> Failure {
        match error {
            tools::Error::Store(error) => Failure::Store(error),
            other => Failure::Tools(other),
        }
    }
}

impl Failure {
    /// Returns a function that reports an error of reading a file, for `map_err`.
    pub fn source<P: AsRef<Path> + ?Sized>(path: &P) -> impl Fn(io::Error) -> Failure + Copy {
        move |source| Failure::Source { path: path.as_ref().to_path_buf(), source }
    }

    /// Returns a function that reports an error of writing a file, for `map_err`.
    pub fn target<P: AsRef<Path> + ?Sized>(path: &P) -> impl Fn(io::Error) -> Failure + Copy {
        move |source| Failure::Target { path: path.as_ref().to_path_buf(), source }
    }

    /// Prints the message and returns the exit code.
    pub fn report(&self) -> ExitCode {
        self.print();
        ExitCode::from(self.exit_code())
    }

    /// Prints the message to stderr.
    pub fn print(&self) {
        if !self.is_silent() {
            // A closed stderr leaves no way to report anything.
            let _ = writeln!(
                io::stderr(),
                "evermap: {}",
                plain(&messages::with_remedy(self.to_string(), self))
            );
        }
    }

    /// Returns true for failures without a message: the reader closed the pipe early, or the exit
    /// code alone reports the result.
    fn is_silent(&self) -> bool {
        matches!(self, Failure::NoMatch | Failure::CommandEnded { .. }) || self.is_closed_pipe()
    }

    fn is_closed_pipe(&self) -> bool {
        matches!(self, Failure::Output(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Returns true if the failure concerns one source only, not the store or the whole call.
    pub fn concerns_one_source(&self) -> bool {
        matches!(
            self,
            Failure::Source { .. }
                | Failure::Parse { .. }
                | Failure::NotMarkup { .. }
                | Failure::TooLong { .. }
                | Failure::NameOfOtherSource { .. }
        )
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Output(_) if self.is_closed_pipe() => 0,
            Failure::NoMatch => 1,
            Failure::Usage(_)
            | Failure::NotBuilt { .. }
            | Failure::NoHome
            | Failure::Selector(_) => 2,
            Failure::Store(error) => codes::store(error),
            Failure::Tools(error) => codes::tools(error),
            Failure::Document { .. } | Failure::NotADocument { .. } | Failure::DamageFound(_) => 5,
            Failure::NotAnExport { .. } => 5,
            Failure::StoreExists { .. } | Failure::FileExists { .. } => 9,
            Failure::TargetNotDirectory { .. } => 9,
            Failure::GuestName { .. } | Failure::InsideStore { .. } => 2,
            Failure::NoProcess { .. } | Failure::NoBackup { .. } => 3,
            Failure::ProcessDenied { .. } => 6,
            Failure::Source { source, .. } => codes::io(source, 8),
            Failure::Target { source, .. } => codes::io(source, 10),
            Failure::Parse { source, .. } if source.kind == ParseErrorKind::NoMemory => 7,
            Failure::Parse { .. } | Failure::NotMarkup { .. } | Failure::TooLong { .. } => 8,
            Failure::NotAllParsed { code, .. } => *code,
            Failure::NameOfOtherSource { .. } => 9,
            Failure::Stale { .. } => 12,
            Failure::Output(error) => codes::io(error, 10),
            #[cfg(feature = "view")]
            Failure::Page(error) => codes::page(error),
            #[cfg(feature = "view")]
            Failure::NotPrefetched { .. } => 11,
            Failure::CommandEnded { code } => *code,
            #[cfg(feature = "sandbox")]
            Failure::GuestEnded { .. } => 134,
            #[cfg(feature = "sandbox")]
            Failure::Sandbox(error) => codes::sandbox(error),
            Failure::NotAllCopied { .. } => 10,
            Failure::Transfer(error) => codes::transfer(error),
            Failure::Load(error) => codes::load(error),
            Failure::Trace(error) => codes::trace(error),
            Failure::Tier(error) => codes::tier(error),
            Failure::Lane(error) => codes::lane(error),
            Failure::NoLane => 14,
            Failure::LaneRefused(evermap_lane::Error::NotStarted { .. }) => 126,
            Failure::LaneRefused(_) | Failure::NoTier(_) => 125,
            Failure::Simulation(error) => codes::simulation(error),
            Failure::InFile { source, .. } => codes::simulation(source),
            Failure::Wall(_) | Failure::NoShim { .. } => 125,
            Failure::NotStarted { .. } => 126,
            Failure::NoCommand { .. } => 127,
            Failure::Measurement { source, .. } => codes::io(source, 10),
            Failure::Demo { code, .. } => *code,
        }
    }
}
