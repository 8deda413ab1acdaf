//! Whatever went wrong, as one message and one exit code.
//!
//! The library's errors bring their own remedy; the few that name Rust functions get one in the
//! words of the command line. Exit codes are part of the interface: `--help` and `docs/cli.md`
//! list them, and each stands for one cause.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use evermap::Error;
use evermap_dom::{InvalidDocument, ParseError, ParseErrorKind, SelectorError, SelectorErrorKind};

use crate::kinds::Other;
use crate::output;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// `query` found nothing: an answer, not an error, and nothing is said.
    #[error("nothing matched")]
    NoMatch,
    #[error("{0}")]
    Usage(String),
    /// A verb that stands behind a feature.
    #[error(
        "this build has no `{verb}`: build it with `cargo install --locked --path crates/evermap-cli \
         --features {feature}`, or see it at work with `make {feature}`"
    )]
    NotBuilt { verb: String, feature: &'static str },
    #[error("cannot tell where your data directory is: set HOME, EVERMAP_STORE or --store")]
    NoHome,
    #[error("{}", of_a_selector(.0))]
    Selector(#[from] SelectorError),
    #[error("{}", in_words_of_the_command(.0))]
    Store(#[from] Error),
    #[error("object `{name}`: {source}")]
    Document { name: String, source: InvalidDocument },
    #[error("cannot read {}: {}", path.display(), why_not_read(source))]
    Source { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {}", path.display(), why_not_written(path, source))]
    Target { path: PathBuf, source: io::Error },
    /// `audit --pid`.
    #[error(
        "no process {id} is there; `--pid` takes the id of a running one that uses the object, or leave it out"
    )]
    NoProcess { id: u32 },
    /// What `restore` was to read.
    #[error("no backup at {}: {why}; name a directory that `evermap backup DEST` made", path.display())]
    NoBackup { path: PathBuf, why: String },
    #[error("cannot parse {}: {source}", path.display())]
    Parse { path: PathBuf, source: Box<ParseError> },
    /// What is surely neither HTML nor XML.
    #[error(
        "cannot parse {}: it is {}, and neither HTML nor XML; {}, or use `--html` or `--xml` to parse it all the same",
        path.display(), other.what, other.remedy
    )]
    NotMarkup { path: PathBuf, other: Other },
    #[error(
        "cannot parse {}: it is longer than {} MiB, the limit; `--limit MIB` raises it",
        path.display(), bytes_max >> 20
    )]
    TooLong { path: PathBuf, bytes_max: u64 },
    /// `parse --keep-going`, after it said which.
    #[error("{count} of {files} files were not parsed; the others were")]
    NotAllParsed { count: usize, files: usize, code: u8 },
    #[error(
        "object `{name}` is no document; `evermap ls --long` shows which are, `evermap info` what it is"
    )]
    NotADocument { name: String },
    /// A document that has a file's base name, and not its path.
    #[error(
        "document `{name}` was made from {}; rename it with `evermap mv {name} NAME`, give the new one another name with `--name`, or replace it with `--force`",
        if of == "-" { "standard input" } else { of }
    )]
    NameOfAnother { name: String, of: String },
    /// `--stale fail`.
    #[error(
        "document `{name}`: {what}; {}`--stale use` takes it as it is",
        if *is_there { "`--stale refresh` parses it again, " } else { "" }
    )]
    Stale { name: String, what: String, is_there: bool },
    /// `mv` of a guest object.
    #[error(
        "`{name}` is a guest's object and keeps its name: the guest finds it and its rights by the name; `evermap backup` copies the store with it"
    )]
    GuestName { name: String },
    /// `copy` of a directory onto a file.
    #[error(
        "cannot copy directory {} onto {}, which is no directory; name another target, or remove that first",
        from.display(), to.display()
    )]
    NotOntoFile { from: PathBuf, to: PathBuf },
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// `check` or `backup` found damage, and has said which.
    #[error("{0}")]
    DamageFound(String),
    #[error(
        "there is something at {} already; `--force` replaces a store, `--store` names another place",
        path.display()
    )]
    StoreInTheWay { path: PathBuf },
    #[error(
        "there is a file {} already; `--force` replaces it, or name another one",
        path.display()
    )]
    FileInTheWay { path: PathBuf },
    #[cfg(feature = "view")]
    #[error("{}", of_a_page(.0))]
    Page(#[from] evermap_view::ViewError),
    /// Some of what `prefetch` was to build.
    #[cfg(feature = "view")]
    #[error("{failed} of {pages} pages were not built")]
    NotPrefetched { failed: usize, pages: usize },
    /// What `load run` was to preload.
    #[error(
        "there is no library to preload: not {}; build it with `cargo build --release -p evermap-load-shim`, \
         install it with `make install`, or set EVERMAP_LOAD_SHIM to its path",
        looked.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", not ")
    )]
    NoShim { looked: Vec<PathBuf> },
    /// What `sandbox exec` or `load run` was to run.
    #[error("no command `{}`: give its path, or set PATH so that it is found", name.display())]
    NoCommand { name: OsString },
    #[error("cannot start {}: {}", program.display(), why_not_started(source))]
    NotStarted { program: PathBuf, source: io::Error },
    /// It ran, and ended so: nothing is to be said about that here.
    #[error("the command ended with {code}")]
    CommandEnded { code: u8 },
    /// What `sandbox run` ran.
    #[cfg(feature = "sandbox")]
    #[error("{} ended: {why}", module.display())]
    GuestEnded { module: PathBuf, why: String },
    #[cfg(feature = "sandbox")]
    #[error("{}", of_a_sandbox(.0))]
    Sandbox(#[from] evermap_wasm::Error),
    /// `copy --keep-going`, after it said what.
    #[error("{count} of what was to be copied was not; the rest was")]
    NotAllCopied { count: u64 },
    #[error("{}", of_a_transfer(.0))]
    Transfer(#[from] evermap_transfer::Error),
    #[error(transparent)]
    Load(#[from] evermap_load::Error),
    #[error(transparent)]
    Trace(#[from] evermap_lane::trace::Error),
    #[error(transparent)]
    Tier(#[from] evermap_lane::tier::Error),
    #[error(transparent)]
    Lane(#[from] evermap_lane::Error),
    /// What `lane run` was to run was not, or not to its end.
    #[error("no lane: {0}")]
    LaneRefused(evermap_lane::Error),
    /// What `lane run` was to show its program.
    #[error("no lane: {0}")]
    NoTier(evermap_lane::tier::Error),
    #[error(transparent)]
    Simulation(#[from] evermap_lane::simulate::Error),
    /// A profile or targets of the user's.
    #[error("{}: {source}", path.display())]
    InFile { path: PathBuf, source: Box<evermap_lane::simulate::Error> },
    #[error("no wall, and nothing was started: {0}")]
    Wall(#[from] evermap_compartment::Error),
    /// `lane check`, after it said why.
    #[error("no lane with SCHED_FIFO is possible here: see `core`, `affinity` and `fifo` above")]
    NoLane,
    /// A process that `demo` started, or was to start.
    #[error("the demonstration failed: {why}")]
    Demo { why: String, code: u8 },
}

impl Failure {
    /// Says what went wrong and gives the exit code.
    pub fn report(&self) -> ExitCode {
        self.say();
        ExitCode::from(self.exit_code())
    }

    /// Says what went wrong.
    pub fn say(&self) {
        if !self.is_silent() {
            // Nobody is left to tell when stderr is closed too.
            let _ = writeln!(io::stderr(), "evermap: {}", output::plain(&self.with_remedy()));
        }
    }

    /// The message, and the remedy for what the kernel refused if the message has none.
    fn with_remedy(&self) -> String {
        let message = self.to_string();
        match refused_by_kernel(self) {
            Some(remedy) if REMEDIES.iter().all(|known| !message.contains(known)) => {
                format!("{message}; {remedy}")
            }
            _ => message,
        }
    }

    /// Whoever reads our output may stop before its end; and `query` that finds nothing says so by
    /// its exit code.
    fn is_silent(&self) -> bool {
        matches!(self, Failure::NoMatch | Failure::CommandEnded { .. }) || self.is_closed_pipe()
    }

    fn is_closed_pipe(&self) -> bool {
        matches!(self, Failure::Output(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Does it say something about one source, and nothing about the store or the call?
    pub fn is_of_one_source(&self) -> bool {
        matches!(
            self,
            Failure::Source { .. }
                | Failure::Parse { .. }
                | Failure::NotMarkup { .. }
                | Failure::TooLong { .. }
                | Failure::NameOfAnother { .. }
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
            Failure::Store(error) => exit_code_of(error),
            Failure::Document { .. } | Failure::NotADocument { .. } | Failure::DamageFound(_) => 5,
            Failure::StoreInTheWay { .. } | Failure::FileInTheWay { .. } => 9,
            Failure::NotOntoFile { .. } => 9,
            Failure::GuestName { .. } => 2,
            Failure::NoProcess { .. } | Failure::NoBackup { .. } => 3,
            Failure::Source { source, .. } => exit_code_of_file(source, 8),
            Failure::Target { source, .. } => exit_code_of_file(source, 10),
            Failure::Parse { source, .. } if source.kind == ParseErrorKind::NoMemory => 7,
            Failure::Parse { .. } | Failure::NotMarkup { .. } | Failure::TooLong { .. } => 8,
            Failure::NotAllParsed { code, .. } => *code,
            Failure::NameOfAnother { .. } => 9,
            Failure::Stale { .. } => 12,
            Failure::Output(error) => exit_code_of_file(error, 10),
            #[cfg(feature = "view")]
            Failure::Page(error) => exit_code_of_page(error),
            #[cfg(feature = "view")]
            Failure::NotPrefetched { .. } => 11,
            Failure::CommandEnded { code } => *code,
            #[cfg(feature = "sandbox")]
            Failure::GuestEnded { .. } => 134,
            #[cfg(feature = "sandbox")]
            Failure::Sandbox(error) => exit_code_of_sandbox(error),
            Failure::NotAllCopied { .. } => 10,
            Failure::Transfer(error) => exit_code_of_transfer(error),
            Failure::Load(error) => exit_code_of_load(error),
            Failure::Trace(error) => exit_code_of_trace(error),
            Failure::Tier(error) => exit_code_of_tier(error),
            Failure::Lane(error) => exit_code_of_lane(error),
            Failure::NoLane => 14,
            Failure::LaneRefused(evermap_lane::Error::NotStarted { .. }) => 126,
            Failure::LaneRefused(_) | Failure::NoTier(_) => 125,
            Failure::Simulation(error) => exit_code_of_simulation(error),
            Failure::InFile { source, .. } => exit_code_of_simulation(source),
            Failure::Wall(_) | Failure::NoShim { .. } => 125,
            Failure::NotStarted { .. } => 126,
            Failure::NoCommand { .. } => 127,
            Failure::Demo { code, .. } => *code,
        }
    }
}

fn exit_code_of(error: &Error) -> u8 {
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
        Error::DiskFull { .. } | Error::FileSizeLimit { .. } | Error::OutOfAddresses { .. } => 7,
        Error::Io { source, .. } if is_lack_of_room(source.kind()) => 7,
        Error::AlreadyExists { .. } | Error::StoreExists { .. } => 9,
        _ => 10,
    }
}

fn exit_code_of_transfer(error: &evermap_transfer::Error) -> u8 {
    use evermap_transfer::Error;
    match error {
        Error::Io { source, .. } => exit_code_of_file(source, 10),
        Error::Usage(_) | Error::SameFile { .. } => 2,
        Error::Busy { .. } => 4,
        Error::NoSpace { .. } | Error::TooLarge { .. } => 7,
        Error::SourceChanged { .. } | Error::Differs { .. } => 12,
        Error::Peer { .. } | Error::PeerRefused { .. } => 13,
        Error::Cancelled { .. } => 130,
        Error::Incomplete(report) => report.errors.first().map_or(10, exit_code_of_transfer),
        _ => 10,
    }
}

fn exit_code_of_load(error: &evermap_load::Error) -> u8 {
    use evermap_load::Error;
    match error {
        Error::Io { source, .. } => exit_code_of_file(source, 10),
        Error::NotAFile { .. } | Error::NoSuchRange { .. } | Error::Refused { .. } => 2,
        Error::Malformed { .. } => 8,
        Error::NoMemory { .. } => 7,
        Error::Changed { .. } => 12,
        _ => 10,
    }
}

fn exit_code_of_tier(error: &evermap_lane::tier::Error) -> u8 {
    use evermap_lane::tier::Error;
    match error {
        Error::Io { source, .. } => exit_code_of_file(source, 10),
        Error::Transfer(error) => exit_code_of_transfer(error),
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

fn exit_code_of_trace(error: &evermap_lane::trace::Error) -> u8 {
    use evermap_lane::trace::Error;
    match error {
        Error::Io { source, .. } => exit_code_of_file(source, 10),
        Error::Empty { .. } | Error::UnknownFormat { .. } | Error::NothingUsable { .. } => 8,
        Error::NewerVersion { .. } => 5,
        Error::NoTool { .. } | Error::Refused { .. } => 125,
        Error::NotStarted { .. } => 126,
        _ => 10,
    }
}

fn exit_code_of_lane(error: &evermap_lane::Error) -> u8 {
    use evermap_lane::Error;
    use evermap_lane::observe::Unobservable;
    match error {
        Error::Io { source, .. } => exit_code_of_file(source, 10),
        Error::CoreRefused { .. } => 2,
        Error::InvalidPolicy(_) | Error::NoPeriod | Error::NotAFile { .. } => 2,
        Error::NoRoom { .. } => 7,
        Error::NotCopied { source, .. } => exit_code_of_transfer(source),
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

fn exit_code_of_simulation(error: &evermap_lane::simulate::Error) -> u8 {
    use evermap_lane::simulate::Error;
    match error {
        Error::Syntax { .. } => 8,
        Error::UnknownProfile { .. } => 3,
        _ => 2,
    }
}

#[cfg(feature = "sandbox")]
fn exit_code_of_sandbox(error: &evermap_wasm::Error) -> u8 {
    use evermap_wasm::Error;
    match error {
        Error::Store(error) => exit_code_of(error),
        Error::InvalidName { .. } => 2,
        Error::NoApplication { .. } | Error::NoObject { .. } => 3,
        Error::NoRight { .. } | Error::NoBinding { .. } => 3,
        Error::HasObjects { .. } => 4,
        Error::DamagedTable { .. } | Error::NewerTable { .. } => 5,
        Error::MissingTable { .. } | Error::HalfKnown { .. } => 5,
        Error::WrongKey { .. } | Error::NotBound { .. } | Error::UnsafeTable { .. } => 6,
        Error::PreopenHoldsStore { .. } | Error::PreopenHoldsProcesses { .. } => 6,
        Error::Io { source, .. } => exit_code_of_file(source, 10),
        Error::Module { .. } | Error::BudgetTooSmall { .. } => 125,
        _ => 10,
    }
}

#[cfg(feature = "sandbox")]
fn of_a_sandbox(error: &evermap_wasm::Error) -> String {
    match error {
        evermap_wasm::Error::Store(error) => in_words_of_the_command(error),
        other => other.to_string(),
    }
}

#[cfg(feature = "view")]
fn exit_code_of_page(error: &evermap_view::ViewError) -> u8 {
    use evermap_view::ViewError;
    match error {
        ViewError::Store(error) => exit_code_of(error),
        ViewError::NotFound { .. } => 3,
        ViewError::File { source, .. } => exit_code_of_file(source, 10),
        ViewError::Refused { .. } => 6,
        ViewError::InvalidPage(_) | ViewError::MissingPart { .. } => 5,
        ViewError::BadSize { .. } => 2,
        ViewError::NoWindow(_) | ViewError::NoEngine { .. } => 10,
        _ => 11,
    }
}

#[cfg(feature = "view")]
fn of_a_page(error: &evermap_view::ViewError) -> String {
    match error {
        evermap_view::ViewError::Store(error) => in_words_of_the_command(error),
        other => other.to_string(),
    }
}

pub fn exit_code_of_file(error: &io::Error, otherwise: u8) -> u8 {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => 3,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => 6,
        kind if is_lack_of_room(kind) => 7,
        _ => otherwise,
    }
}

/// Returns true for a full disk and for limits of this process.
fn is_lack_of_room(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{FileTooLarge, OutOfMemory, QuotaExceeded, StorageFull, WouldBlock};
    // `WouldBlock` is for a thread or a process that cannot be started.
    matches!(kind, StorageFull | QuotaExceeded | OutOfMemory | FileTooLarge | WouldBlock)
}

/// Words that appear in every remedy for a lack of room.
const REMEDIES: [&str; 3] = ["ulimit", "free ", "another disk"];

/// Returns the remedy if a limit or a full disk caused the error.
fn refused_by_kernel(failure: &Failure) -> Option<&'static str> {
    let mut error: Option<&(dyn std::error::Error + 'static)> = Some(failure);
    while let Some(at) = error {
        match at.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::FileTooLarge) => {
                return Some("raise this process's limit of a file's size (`ulimit -f`)");
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

/// Why a file of the user's cannot be read, and what to do about it.
fn why_not_read(source: &io::Error) -> String {
    let why = first_words(source);
    match source.kind() {
        io::ErrorKind::NotFound => format!("{why}; see whether the name is right"),
        io::ErrorKind::NotADirectory => {
            format!("{why}; a part of the name is a file: see whether the name is right")
        }
        io::ErrorKind::PermissionDenied => {
            format!("{why}; run as a user with permission, or change the permissions")
        }
        _ => why,
    }
}

/// Why a file of the user's cannot be written, and what to do about it.
fn why_not_written(path: &Path, source: &io::Error) -> String {
    let folder = folder_of(path).display();
    match source.kind() {
        io::ErrorKind::NotFound => {
            format!("there is no folder {folder}; make it, or name a file elsewhere")
        }
        io::ErrorKind::NotADirectory => {
            format!("{folder} is no folder; name a file in a folder")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => format!(
            "{}; name a file elsewhere, or see who may write in {folder} and whether it is \
             mounted read-only",
            first_words(source)
        ),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("no space left; free some in {folder}, or name a file on another disk")
        }
        _ => first_words(source),
    }
}

/// Why a command cannot be started behind a wall, and what to do about it.
fn why_not_started(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::NotFound => {
            "the interpreter that it names is not there, or its loader".to_string()
        }
        io::ErrorKind::PermissionDenied => "it is not executable, or needs a file that is behind \
             the wall, as its interpreter or its loader; name that with `--read`"
            .to_string(),
        _ => first_words(source),
    }
}

/// The kernel's reason, without the name of a file that the user doesn't know.
fn first_words(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" at path ").next().unwrap_or(&text).to_string()
}

/// The folder in which a file is or shall be.
pub fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn of_a_selector(error: &SelectorError) -> String {
    match error.kind {
        SelectorErrorKind::UnknownPrefix => format!(
            "{}; declare it with `--namespace PREFIX=URI`",
            error.to_string().replace(" (see Selector::parse_with_namespaces)", "")
        ),
        _ => error.to_string(),
    }
}

/// The library names its options as its builder does; the command has a flag for each.
fn of_a_transfer(error: &evermap_transfer::Error) -> String {
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

/// Returns true for the file of an object, which `parse --force` makes anew if it is a document.
fn is_of_an_object(path: &Path) -> bool {
    path.parent().and_then(Path::file_name).is_some_and(|folder| folder == "objects")
}

fn in_words_of_the_command(error: &Error) -> String {
    match error {
        Error::NoStore { path, why } => format!(
            "no store at {}: {why}; `evermap parse FILE` makes one (so do `import` and `restore`), `--store` or EVERMAP_STORE names another",
            path.display()
        ),
        Error::NotFound { store, object } => format!(
            "no object `{object}` in store {}; `evermap ls` shows the names there are",
            store.display()
        ),
        Error::AlreadyExists { store, object } => format!(
            "object `{object}` exists already in store {}; remove it with `evermap rm`, or choose another name",
            store.display()
        ),
        Error::ChangedSince { path, what } => format!(
            "store {} has changed since its rebase: {what}; `--undo --force` goes back all the same and loses that",
            path.display()
        ),
        Error::PointsElsewhere { object, count, to, first } => format!(
            "object `{object}` has {count} pointers to {to} (the first at {first}); `--force` exports it all the same: those pointers lead nowhere then"
        ),
        Error::Damaged { path, .. } | Error::Foreign { path, .. } if is_of_an_object(path) => {
            format!("{error}; `evermap parse --force` makes a document anew")
        }
        Error::SchemaMismatch { store, object, .. } => format!(
            "object `{object}` in store {} is of another type and no document; `evermap info` shows its type, `--name` gives a document another name, `evermap parse --force` replaces the object",
            store.display()
        ),
        Error::OtherBuild { object, recorded, found } => format!(
            "object `{object}` has pointers into {recorded}; this process has {found}; open it with the program that made it: `evermap check` and `map` look at it without opening it"
        ),
        other => other.to_string(),
    }
}
