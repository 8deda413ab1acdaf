//! Failures of the command: one message and one exit code each.
//!
//! The library's errors contain their own remedies. Errors that name Rust functions are rewritten
//! here to name options and verbs of the command. Exit codes are part of the interface: `--help`
//! and `docs/cli.md` list them, and each code stands for one cause.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use evermap::Error;
use evermap_dom::{InvalidDocument, ParseError, ParseErrorKind, SelectorError, SelectorErrorKind};

use crate::kinds::NonMarkup;
use crate::output;

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
    #[error("{}", selector_message(.0))]
    Selector(#[from] SelectorError),
    #[error("{}", store_message(.0))]
    Store(#[from] Error),
    #[error("object `{name}`: {source}")]
    Document { name: String, source: InvalidDocument },
    #[error("cannot read {}: {}", path.display(), read_error_message(source))]
    Source { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {}", path.display(), write_error_message(path, source))]
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
    #[cfg(feature = "view")]
    #[error("{}", page_message(.0))]
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
    #[error("cannot start {}: {}", program.display(), start_error_message(source))]
    NotStarted { program: PathBuf, source: io::Error },
    /// The command ran and ended with this code. No message is printed.
    #[error("the command exited with {code}")]
    CommandEnded { code: u8 },
    /// The program of `sandbox run` trapped, or reached a limit.
    #[cfg(feature = "sandbox")]
    #[error("{} ended: {why}", module.display())]
    GuestEnded { module: PathBuf, why: String },
    #[cfg(feature = "sandbox")]
    #[error("{}", sandbox_message(.0))]
    Sandbox(#[from] evermap_wasm::Error),
    /// `copy --keep-going` skipped entries, and has reported each.
    #[error("{count} entries were not copied; the others were")]
    NotAllCopied { count: u64 },
    #[error("{}", transfer_message(.0))]
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

impl Failure {
    /// Prints the message and returns the exit code.
    pub fn report(&self) -> ExitCode {
        self.print();
        ExitCode::from(self.exit_code())
    }

    /// Prints the message to stderr.
    pub fn print(&self) {
        if !self.is_silent() {
            // A closed stderr leaves no way to report anything.
            let _ = writeln!(io::stderr(), "evermap: {}", output::plain(&self.with_remedy()));
        }
    }

    /// Returns the message. Adds a remedy for a refusal of the kernel if the message has none.
    fn with_remedy(&self) -> String {
        let message = self.to_string();
        match resource_remedy(self) {
            Some(remedy) if REMEDIES.iter().all(|known| !message.contains(known)) => {
                format!("{message}; {remedy}")
            }
            _ => message,
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
            Failure::Store(error) => store_exit_code(error),
            Failure::Document { .. } | Failure::NotADocument { .. } | Failure::DamageFound(_) => 5,
            Failure::StoreExists { .. } | Failure::FileExists { .. } => 9,
            Failure::TargetNotDirectory { .. } => 9,
            Failure::GuestName { .. } => 2,
            Failure::NoProcess { .. } | Failure::NoBackup { .. } => 3,
            Failure::ProcessDenied { .. } => 6,
            Failure::Source { source, .. } => io_exit_code(source, 8),
            Failure::Target { source, .. } => io_exit_code(source, 10),
            Failure::Parse { source, .. } if source.kind == ParseErrorKind::NoMemory => 7,
            Failure::Parse { .. } | Failure::NotMarkup { .. } | Failure::TooLong { .. } => 8,
            Failure::NotAllParsed { code, .. } => *code,
            Failure::NameOfOtherSource { .. } => 9,
            Failure::Stale { .. } => 12,
            Failure::Output(error) => io_exit_code(error, 10),
            #[cfg(feature = "view")]
            Failure::Page(error) => page_exit_code(error),
            #[cfg(feature = "view")]
            Failure::NotPrefetched { .. } => 11,
            Failure::CommandEnded { code } => *code,
            #[cfg(feature = "sandbox")]
            Failure::GuestEnded { .. } => 134,
            #[cfg(feature = "sandbox")]
            Failure::Sandbox(error) => sandbox_exit_code(error),
            Failure::NotAllCopied { .. } => 10,
            Failure::Transfer(error) => transfer_exit_code(error),
            Failure::Load(error) => load_exit_code(error),
            Failure::Trace(error) => trace_exit_code(error),
            Failure::Tier(error) => tier_exit_code(error),
            Failure::Lane(error) => lane_exit_code(error),
            Failure::NoLane => 14,
            Failure::LaneRefused(evermap_lane::Error::NotStarted { .. }) => 126,
            Failure::LaneRefused(_) | Failure::NoTier(_) => 125,
            Failure::Simulation(error) => simulation_exit_code(error),
            Failure::InFile { source, .. } => simulation_exit_code(source),
            Failure::Wall(_) | Failure::NoShim { .. } => 125,
            Failure::NotStarted { .. } => 126,
            Failure::NoCommand { .. } => 127,
            Failure::Measurement { source, .. } => io_exit_code(source, 10),
            Failure::Demo { code, .. } => *code,
        }
    }
}

fn store_exit_code(error: &Error) -> u8 {
    match error {
        Error::InvalidName { .. } | Error::BadBase { .. } => 2,
        Error::NoStore { .. } | Error::NotFound { .. } | Error::NothingKept { .. } => 3,
        Error::Busy { .. } | Error::AddressTaken { .. } => 4,
        Error::Foreign { .. }
        | Error::NewerFormat { .. }
        | Error::Damaged { .. }
        | Error::SchemaMismatch { .. }
        | Error::OtherApplication { .. }
        | Error::OtherKind { .. }
        | Error::BadRoot { .. }
        | Error::LogMissing { .. }
        | Error::BadExport { .. } => 5,
        Error::NotPermitted { .. } => 6,
        Error::DiskFull { .. }
        | Error::FileSizeLimit { .. }
        | Error::OutOfAddresses { .. }
        | Error::AddressQuota { .. } => 7,
        Error::Io { source, .. } if is_out_of_resources(source.kind()) => 7,
        Error::AlreadyExists { .. } | Error::StoreExists { .. } => 9,
        _ => 10,
    }
}

fn transfer_exit_code(error: &evermap_transfer::Error) -> u8 {
    use evermap_transfer::Error;
    match error {
        Error::Io { source, .. } => io_exit_code(source, 10),
        Error::Usage(_) | Error::SameFile { .. } => 2,
        Error::Busy { .. } => 4,
        Error::NoSpace { .. } | Error::TooLarge { .. } => 7,
        Error::SourceChanged { .. } | Error::Differs { .. } => 12,
        Error::Peer { .. } | Error::PeerRefused { .. } => 13,
        Error::Cancelled { .. } => 130,
        Error::Incomplete(report) => report.errors.first().map_or(10, transfer_exit_code),
        _ => 10,
    }
}

fn load_exit_code(error: &evermap_load::Error) -> u8 {
    use evermap_load::Error;
    match error {
        Error::Io { source, .. } => io_exit_code(source, 10),
        Error::NotAFile { .. } | Error::NoSuchRange { .. } | Error::Refused { .. } => 2,
        Error::Malformed { .. } => 8,
        Error::NoMemory { .. } => 7,
        Error::Changed { .. } => 12,
        _ => 10,
    }
}

fn tier_exit_code(error: &evermap_lane::tier::Error) -> u8 {
    use evermap_lane::tier::Error;
    match error {
        Error::Io { source, .. } => io_exit_code(source, 10),
        Error::Transfer(error) => transfer_exit_code(error),
        Error::Unsuitable { .. } | Error::NotLasting { .. } | Error::Pattern { .. } => 2,
        Error::NotPlaced { .. } | Error::Vanished { .. } | Error::DirectoryGone { .. } => 3,
        Error::TierMissing { .. } => 3,
        Error::InUse { .. } | Error::Interrupted { .. } | Error::Busy { .. } => 4,
        Error::Damaged { .. } | Error::Record { .. } => 5,
        Error::UnsafeDirectory { .. } | Error::NoNamespace { .. } => 6,
        Error::TierFull { .. } => 7,
        Error::AlreadyPlaced { .. } | Error::Replaced { .. } => 9,
        Error::Changed { .. } | Error::Differs { .. } | Error::Conflict { .. } => 12,
        Error::Cancelled { .. } => 130,
        _ => 10,
    }
}

fn trace_exit_code(error: &evermap_trace::Error) -> u8 {
    use evermap_trace::Error;
    match error {
        Error::Io { source, .. } => io_exit_code(source, 10),
        Error::Empty { .. } | Error::UnknownFormat { .. } | Error::NothingUsable { .. } => 8,
        Error::NewerVersion { .. } => 5,
        Error::NoTool { .. } | Error::Refused { .. } => 125,
        Error::NotStarted { .. } => 126,
        _ => 10,
    }
}

fn lane_exit_code(error: &evermap_lane::Error) -> u8 {
    use evermap_lane::Error;
    use evermap_lane::observe::Unobservable;
    match error {
        Error::Io { source, .. } => io_exit_code(source, 10),
        Error::CoreRefused { .. } => 2,
        Error::InvalidPolicy(_) | Error::NoPeriod | Error::NotAFile { .. } => 2,
        Error::NoRoom { .. } => 7,
        Error::NotCopied { source, .. } => transfer_exit_code(source),
        Error::Truncated { .. } | Error::Changed { .. } => 12,
        Error::NoProcess { .. } => 3,
        Error::Unobservable { why, .. } => match why {
            Unobservable::KernelThread | Unobservable::ThreadOf { .. } => 2,
            Unobservable::NotPermitted { .. } => 6,
            _ => 3,
        },
        Error::CoreTaken { .. } | Error::NoCore { .. } => 4,
        Error::Journal { .. } => 5,
        Error::State { .. } => 6,
        Error::Policy { .. } => 8,
        _ => 10,
    }
}

fn simulation_exit_code(error: &evermap_simulate::Error) -> u8 {
    use evermap_simulate::Error;
    match error {
        Error::Syntax { .. } => 8,
        Error::UnknownProfile { .. } => 3,
        _ => 2,
    }
}

#[cfg(feature = "sandbox")]
fn sandbox_exit_code(error: &evermap_wasm::Error) -> u8 {
    use evermap_wasm::Error;
    match error {
        Error::Store(error) => store_exit_code(error),
        Error::InvalidName { .. } => 2,
        Error::NoApplication { .. } | Error::NoObject { .. } => 3,
        Error::NoRight { .. } | Error::NoBinding { .. } => 3,
        Error::HasObjects { .. } => 4,
        Error::DamagedTable { .. } | Error::NewerTable { .. } => 5,
        Error::MissingTable { .. } | Error::IncompleteApplication { .. } => 5,
        Error::WrongKey { .. } | Error::NotBound { .. } | Error::UnsafeTable { .. } => 6,
        Error::PreopenHoldsStore { .. } | Error::PreopenHoldsProcesses { .. } => 6,
        Error::Io { source, .. } => io_exit_code(source, 10),
        Error::Module { .. } | Error::BudgetTooSmall { .. } => 125,
        _ => 10,
    }
}

#[cfg(feature = "sandbox")]
fn sandbox_message(error: &evermap_wasm::Error) -> String {
    match error {
        evermap_wasm::Error::Store(error) => store_message(error),
        other => other.to_string(),
    }
}

#[cfg(feature = "view")]
fn page_exit_code(error: &evermap_view::ViewError) -> u8 {
    use evermap_view::ViewError;
    match error {
        ViewError::Store(error) => store_exit_code(error),
        ViewError::NotFound { .. } => 3,
        ViewError::File { source, .. } => io_exit_code(source, 10),
        ViewError::Refused { .. } => 6,
        ViewError::InvalidPage(_) | ViewError::MissingPart { .. } => 5,
        ViewError::BadSize { .. } => 2,
        ViewError::NoWindow(_) | ViewError::NoEngine { .. } => 10,
        _ => 11,
    }
}

#[cfg(feature = "view")]
fn page_message(error: &evermap_view::ViewError) -> String {
    match error {
        evermap_view::ViewError::Store(error) => store_message(error),
        other => other.to_string(),
    }
}

/// Returns the exit code of a failed file operation: `otherwise` if its kind has no code.
fn io_exit_code(error: &io::Error, otherwise: u8) -> u8 {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => 3,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => 6,
        kind if is_out_of_resources(kind) => 7,
        _ => otherwise,
    }
}

/// Returns true for a full disk, a quota, missing memory and the limits of this process.
fn is_out_of_resources(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{FileTooLarge, OutOfMemory, QuotaExceeded, StorageFull, WouldBlock};
    // The kernel returns `WouldBlock` (EAGAIN) if it cannot start a thread or a process.
    matches!(kind, StorageFull | QuotaExceeded | OutOfMemory | FileTooLarge | WouldBlock)
}

/// Words that occur in every remedy for missing resources: no second remedy is added.
const REMEDIES: [&str; 4] = ["ulimit", "free ", "another disk", "name a file"];

/// Returns the remedy if a limit or a full disk caused the error.
fn resource_remedy(failure: &Failure) -> Option<&'static str> {
    let mut error: Option<&(dyn std::error::Error + 'static)> = Some(failure);
    while let Some(at) = error {
        match at.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::FileTooLarge) => {
                return Some("raise this process's file size limit (`ulimit -f`)");
            }
            Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                return Some("free some space there, or use another disk");
            }
            Some(io::ErrorKind::OutOfMemory) => {
                return Some("raise this process's limit (`ulimit -v`), or free memory");
            }
            Some(io::ErrorKind::WouldBlock) => {
                return Some("raise this process's limits (`ulimit -u`, `ulimit -v`)");
            }
            _ => error = at.source(),
        }
    }
    None
}

/// Returns the cause and the remedy of a failure to read a file.
fn read_error_message(source: &io::Error) -> String {
    let why = without_path(source);
    match source.kind() {
        io::ErrorKind::NotFound => format!("{why}; check the name"),
        io::ErrorKind::NotADirectory => {
            format!("{why}; a part of the path is a file: check the name")
        }
        io::ErrorKind::PermissionDenied => {
            format!("{why}; run as a user with permission, or change the permissions")
        }
        _ => why,
    }
}

/// Returns the cause and the remedy of a failure to write a file.
fn write_error_message(path: &Path, source: &io::Error) -> String {
    let folder = parent_directory(path);
    let directory = folder.display();
    let is_device =
        || std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir());
    match source.kind() {
        io::ErrorKind::NotFound if folder.is_dir() => {
            format!("files cannot be created in {directory}; name a file elsewhere")
        }
        io::ErrorKind::NotFound => {
            format!("directory {directory} does not exist; create it, or name a file elsewhere")
        }
        io::ErrorKind::NotADirectory => {
            format!("{directory} is not a directory; name a file in a directory")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => format!(
            "{}; name a file elsewhere, or check the permissions of {directory} and whether it is \
             mounted read-only",
            without_path(source)
        ),
        io::ErrorKind::StorageFull if is_device() => {
            "this device accepts no more bytes; name a file".to_string()
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("no space left; free some in {directory}, or name a file on another disk")
        }
        _ => without_path(source),
    }
}

/// Returns the cause and the remedy of a failure to start a confined command.
fn start_error_message(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::NotFound => {
            "its interpreter or its loader does not exist; install it, or correct the file's first \
             line"
                .to_string()
        }
        io::ErrorKind::PermissionDenied => "it is not executable, or needs a file that it may not \
             read, such as its interpreter or its loader; make it executable, or allow the file \
             with `--read`"
            .to_string(),
        _ => without_path(source),
    }
}

/// Returns the text of an I/O error without the path of a temporary file, which `tempfile` adds.
fn without_path(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" at path ").next().unwrap_or(&text).to_string()
}

/// Returns the directory of a file that exists or will be made.
pub fn parent_directory(file: &Path) -> &Path {
    match file.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}

/// Returns the message of a selector error, with the command's option in place of a Rust function.
fn selector_message(error: &SelectorError) -> String {
    match error.kind {
        SelectorErrorKind::UnknownPrefix => format!(
            "{}; declare it with `--namespace PREFIX=URI`",
            error.to_string().replace(" (see Selector::parse_with_namespaces)", "")
        ),
        _ => error.to_string(),
    }
}

/// Replaces the names of the library's builder options by the command's flags.
fn transfer_message(error: &evermap_transfer::Error) -> String {
    const FLAGS: [(&str, &str); 6] = [
        ("`keep_going` (--keep-going)", "`--keep-going`"),
        ("(keep going)", "(`--keep-going`)"),
        ("`room_bytes_max` (--room)", "`--room`"),
        ("`resume`", "`--resume`"),
        ("leave `engine` out", "leave `--engine` out"),
        ("omit `engine`", "omit `--engine`"),
    ];
    FLAGS.iter().fold(error.to_string(), |text, (option, flag)| text.replace(option, flag))
}

/// Returns true for an object's file. `parse --force` replaces it if the object is a document.
fn is_object_file(path: &Path) -> bool {
    path.parent().and_then(Path::file_name).is_some_and(|directory| directory == "objects")
}

/// Returns the message of a store error, with the command's verbs and options in its remedy.
fn store_message(error: &Error) -> String {
    match error {
        Error::NoStore { path, why } => format!(
            "no store at {}: {why}; make one with `evermap parse FILE` (or `evermap store import`, `evermap store restore`), or name another with `--store` or EVERMAP_STORE",
            path.display()
        ),
        Error::NotFound { store, object } => format!(
            "no object `{object}` in store {}; list the names with `evermap ls`",
            store.display()
        ),
        Error::AlreadyExists { store, object } => format!(
            "object `{object}` already exists in store {}; remove it with `evermap rm`, or choose another name",
            store.display()
        ),
        Error::ChangedSince { path, what } => format!(
            "store {} has changed since its rebase: {what}; `--undo --force` undoes the rebase anyway and loses the change",
            path.display()
        ),
        Error::PointsElsewhere { object, count, to, first } => format!(
            "object `{object}` has {} to {to} (the first at {first}); `--force` exports it anyway, and such pointers will be invalid",
            output::counted(*count, "pointer")
        ),
        Error::Damaged { path, .. } | Error::Foreign { path, .. } if is_object_file(path) => {
            format!("{error}; if it is a document, parse it again with `evermap parse --force`")
        }
        Error::SchemaMismatch { store, object, .. } => format!(
            "object `{object}` in store {} has another type and is not a document; show its type with `evermap info`, give the document another name with `--name`, or replace the object with `evermap parse --force`",
            store.display()
        ),
        Error::OtherBuild { object, recorded, found } => format!(
            "object `{object}` has pointers into {recorded}, and this process has {found}; open it with the program that made it, or inspect it with `evermap store check` and `evermap store map`"
        ),
        other => other.to_string(),
    }
}
