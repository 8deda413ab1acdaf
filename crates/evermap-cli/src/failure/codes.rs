//! Exit codes of the libraries' errors. `help` lists the codes.

use std::io;

use evermap::{Error, tools};

pub fn store(error: &Error) -> u8 {
    match error {
        Error::InvalidName { .. } => 2,
        Error::NoStore { .. } | Error::NotFound { .. } => 3,
        Error::Busy { .. } | Error::AddressTaken { .. } => 4,
        Error::Foreign { .. }
        | Error::NewerFormat { .. }
        | Error::Damaged { .. }
        | Error::SchemaMismatch { .. }
        | Error::OtherApplication { .. }
        | Error::OtherKind { .. }
        | Error::BadRoot { .. }
        | Error::LogMissing { .. } => 5,
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

pub fn tools(error: &tools::Error) -> u8 {
    match error {
        tools::Error::Store(error) => store(error),
        tools::Error::BadBase { .. } => 2,
        tools::Error::NothingKept { .. } => 3,
        tools::Error::BadExport { .. } => 5,
        _ => 10,
    }
}

pub fn transfer(error: &evermap_transfer::Error) -> u8 {
    use evermap_transfer::Error;
    match error {
        Error::Io { source, .. } => io(source, 10),
        Error::Usage(_) | Error::SameFile { .. } => 2,
        Error::Busy { .. } => 4,
        Error::NoSpace { .. } | Error::TooLarge { .. } => 7,
        Error::SourceChanged { .. } | Error::Differs { .. } => 12,
        Error::Peer { .. } | Error::PeerRefused { .. } => 13,
        Error::Cancelled { .. } => 130,
        Error::Incomplete(report) => report.errors.first().map_or(10, transfer),
        _ => 10,
    }
}

pub fn load(error: &evermap_load::Error) -> u8 {
    use evermap_load::Error;
    match error {
        Error::Io { source, .. } => io(source, 10),
        Error::NotAFile { .. } | Error::NoSuchRange { .. } | Error::Refused { .. } => 2,
        Error::Malformed { .. } => 8,
        Error::NoMemory { .. } => 7,
        Error::Changed { .. } => 12,
        _ => 10,
    }
}

pub fn tier(error: &evermap_lane::tier::Error) -> u8 {
    use evermap_lane::tier::Error;
    match error {
        Error::Io { source, .. } => io(source, 10),
        Error::Transfer(error) => transfer(error),
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

pub fn trace(error: &evermap_trace::Error) -> u8 {
    use evermap_trace::Error;
    match error {
        Error::Io { source, .. } => io(source, 10),
        Error::Empty { .. } | Error::UnknownFormat { .. } | Error::NothingUsable { .. } => 8,
        Error::NewerVersion { .. } => 5,
        Error::NoTool { .. } | Error::Refused { .. } => 125,
        Error::NotStarted { .. } => 126,
        _ => 10,
    }
}

pub fn lane(error: &evermap_lane::Error) -> u8 {
    use evermap_lane::Error;
    use evermap_lane::observe::Unobservable;
    match error {
        Error::Io { source, .. } => io(source, 10),
        Error::CoreRefused { .. } => 2,
        Error::InvalidPolicy(_) | Error::NoPeriod | Error::NotAFile { .. } => 2,
        Error::NoRoom { .. } => 7,
        Error::NotCopied { source, .. } => transfer(source),
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

pub fn simulation(error: &evermap_simulate::Error) -> u8 {
    use evermap_simulate::Error;
    match error {
        Error::Syntax { .. } => 8,
        Error::UnknownProfile { .. } => 3,
        _ => 2,
    }
}

#[cfg(feature = "sandbox")]
pub fn sandbox(error: &evermap_wasm::Error) -> u8 {
    use evermap_wasm::Error;
    match error {
        Error::Store(error) => store(error),
        Error::InvalidName { .. } => 2,
        Error::NoApplication { .. } | Error::NoObject { .. } => 3,
        Error::NoRight { .. } | Error::NoBinding { .. } => 3,
        Error::HasObjects { .. } => 4,
        Error::DamagedTable { .. } | Error::NewerTable { .. } => 5,
        Error::MissingTable { .. } | Error::IncompleteApplication { .. } => 5,
        Error::WrongKey { .. } | Error::NotBound { .. } | Error::UnsafeTable { .. } => 6,
        Error::PreopenHoldsStore { .. } | Error::PreopenHoldsProcesses { .. } => 6,
        Error::Io { source, .. } => io(source, 10),
        Error::Module { .. } | Error::BudgetTooSmall { .. } => 125,
        _ => 10,
    }
}

#[cfg(feature = "view")]
pub fn page(error: &evermap_view::ViewError) -> u8 {
    use evermap_view::ViewError;
    match error {
        ViewError::Store(error) => store(error),
        ViewError::NotFound { .. } => 3,
        ViewError::File { source, .. } => io(source, 10),
        ViewError::Refused { .. } => 6,
        ViewError::InvalidPage(_) | ViewError::MissingPart { .. } => 5,
        ViewError::BadSize { .. } => 2,
        ViewError::NoWindow(_) | ViewError::NoEngine { .. } => 10,
        _ => 11,
    }
}

/// Returns the exit code of a failed file operation: `otherwise` if its kind has no code.
pub fn io(error: &io::Error, otherwise: u8) -> u8 {
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
