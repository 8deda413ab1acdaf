//! Checks of a place for files: its device and its file system.
//!
//! Tries operations on an unnamed file in the directory, or on the named file, which is only read.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, StatxAttributes, StatxFlags};
use rustix::io::ReadWriteFlags;

use super::super::Machine;
use super::CheckResult;
use crate::sys::probe;

pub(super) fn check(machine: &Machine, place: &Path) -> Vec<CheckResult> {
    let facts = match std::fs::metadata(place) {
        Ok(facts) if facts.is_dir() || facts.is_file() => facts,
        Ok(_) => {
            return vec![CheckResult::no("place", "neither a file nor a directory").at(place)];
        }
        Err(error) => {
            return vec![
                CheckResult::no("place", error.to_string())
                    .remedy("name an existing directory or file")
                    .at(place),
            ];
        }
    };
    let directory = match (facts.is_dir(), place.parent()) {
        (true, _) => place,
        (false, Some(parent)) if !parent.as_os_str().is_empty() => parent,
        (false, _) => Path::new("."),
    };
    let unnamed = unnamed(directory, OFlags::empty());
    let mut all = vec![disk(machine, place, facts.dev())];
    all.extend(reads(machine, place, directory, &facts));
    all.push(match &unnamed {
        Ok(_) => CheckResult::yes("unnamed-files", "tried: incomplete copies stay invisible"),
        Err(error) => CheckResult::no("unnamed-files", format!("{directory:?}: {error}")),
    });
    all.push(leases(&unnamed));
    all.push(exchange(directory));
    all.into_iter().map(|statement| statement.at(place)).collect()
}

/// Makes an unnamed file of one page, which disappears when closed.
fn unnamed(directory: &Path, flags: OFlags) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | flags;
    let file = File::from(rustix::fs::openat(CWD, directory, flags, Mode::RUSR | Mode::WUSR)?);
    probe::write_page(&file)?;
    Ok(file)
}

/// Opens the named file. Its access time does not change if this user owns it.
fn opened(place: &Path, flags: i32) -> io::Result<File> {
    let open = |flags: i32| {
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | flags).open(place)
    };
    open(flags | libc::O_NOATIME).or_else(|_| open(flags))
}

fn disk(machine: &Machine, place: &Path, device: u64) -> CheckResult {
    let name = "disk";
    let system = File::open(place)
        .and_then(|file| Ok(evermap_observe::FileSystem::of(file.as_fd())?))
        .map_or_else(|_| "an unknown file system".into(), |system| system.name().into_owned());
    match block_of(machine, device) {
        Some(block) => {
            let disk = block.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let cores: Vec<String> = machine
                .cpus
                .online
                .iter()
                .filter(|core| machine.disks_served_by(*core).contains(&disk.as_str()))
                .map(|core| core.to_string())
                .collect();
            let by = if cores.is_empty() {
                "unknown cores".into()
            } else {
                format!("core {}", cores.join(", "))
            };
            CheckResult::yes(
                name,
                format!("{system} on {disk}; its requests are completed by {by}"),
            )
        }
        None => CheckResult::is(name, true, format!("{system}, on no disk listed in /sys")),
    }
}

/// Directory of a whole disk in `/sys`, by the device number of the disk or of a partition.
fn block_of(machine: &Machine, device: u64) -> Option<PathBuf> {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let block = std::fs::canonicalize(machine.roots.sys.join("dev/block").join(number)).ok()?;
    match block.join("queue").is_dir() {
        true => Some(block),
        false => block.parent().filter(|disk| disk.join("queue").is_dir()).map(Path::to_owned),
    }
}

fn reads(
    machine: &Machine,
    place: &Path,
    directory: &Path,
    facts: &std::fs::Metadata,
) -> Vec<CheckResult> {
    let file = |flags: OFlags| match facts.is_dir() {
        true => unnamed(directory, flags),
        false => opened(place, flags.bits().cast_signed()),
    };
    let cannot = |name, error: &io::Error| {
        let remedy = "name a writable directory or a readable file";
        CheckResult::no(name, format!("not tried: {error}")).remedy(remedy)
    };
    let is_empty = facts.is_file() && facts.len() == 0;
    if is_empty {
        return vec![
            CheckResult::no("reads", "not tried: the file is empty")
                .remedy("name a file with contents"),
        ];
    }
    let cached = file(OFlags::empty());
    let direct = file(OFlags::DIRECT);
    vec![
        cached.as_ref().map_or_else(|error| cannot("nowait-reads", error), nowait),
        cached.as_ref().map_or_else(|error| cannot("device-mapping", error), device_mapping),
        direct.as_ref().map_or_else(no_direct, direct_reads),
        direct.as_ref().map_or_else(no_direct_polled, |file| polled(machine, file, facts.dev())),
    ]
}

fn nowait(file: &File) -> CheckResult {
    let name = "nowait-reads";
    let mut byte = [0];
    let read =
        rustix::io::preadv2(file, &mut [io::IoSliceMut::new(&mut byte)], 0, ReadWriteFlags::NOWAIT);
    match read {
        Ok(_) => CheckResult::yes(name, "tried: reads with RWF_NOWAIT return cached data"),
        Err(rustix::io::Errno::AGAIN) => CheckResult::yes(name, "tried: reads with RWF_NOWAIT fail for data that is not cached"),
        Err(rustix::io::Errno::OPNOTSUPP) => CheckResult::no(name, "EOPNOTSUPP: this file system does not support RWF_NOWAIT")
            .remedy("with `mode = \"nowait\"`, reads that the helper has not covered wait for the disk; ext4, xfs and btrfs support it, and tmpfs does not need it"),
        Err(error) => CheckResult::no(name, io::Error::from(error).to_string()),
    }
}

fn device_mapping(file: &File) -> CheckResult {
    let name = "device-mapping";
    let attributes = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::empty());
    let is_dax = attributes.is_ok_and(|facts| facts.stx_attributes.contains(StatxAttributes::DAX));
    match probe::map_sync(file) {
        Ok(()) => CheckResult::yes(
            name,
            "tried: mappings access persistent memory directly (DAX, MAP_SYNC)",
        ),
        Err(error) => {
            let dax = if is_dax { "the file uses DAX, but not synchronously" } else { "no DAX" };
            CheckResult::no(name, format!("MAP_SYNC fails with {error}: {dax}; mappings use the page cache"))
                .remedy("a tier on persistent memory needs ext4 or xfs on a pmem device, mounted with `dax`; tmpfs is lost at a restart")
        }
    }
}

fn no_direct(error: &io::Error) -> CheckResult {
    CheckResult::no("direct-reads", format!("cannot open a file with O_DIRECT: {error}"))
}

fn no_direct_polled(error: &io::Error) -> CheckResult {
    CheckResult::no(
        "polled-reads",
        format!("they need direct reads, and a file cannot be opened with O_DIRECT: {error}"),
    )
}

fn direct_reads(file: &File) -> CheckResult {
    match probe::direct_read(file) {
        Ok(_) => CheckResult::yes("direct-reads", "tried: reads bypass the page cache"),
        Err(error) => CheckResult::no("direct-reads", error.to_string()),
    }
}

fn polled(machine: &Machine, file: &File, device: u64) -> CheckResult {
    let name = "polled-reads";
    let queue = block_of(machine, device)
        .map(|block| block.join("queue/io_poll"))
        .and_then(|path| Some((super::super::roots::text(&path).ok()?.trim().to_owned(), path)));
    let setting = match &queue {
        Some((value, path)) => format!("{} is {value}", path.display()),
        None => "/sys lists no disk below it".into(),
    };
    match probe::polled_read(file) {
        Ok(_) => CheckResult::yes(
            name,
            format!("tried: the device can be polled for completions (IOPOLL; {setting})"),
        ),
        Err(error) => {
            let said = match error.raw_os_error() {
                Some(libc::EOPNOTSUPP) => {
                    "EOPNOTSUPP: the device's queues, or the file system, cannot be polled".into()
                }
                _ => error.to_string(),
            };
            CheckResult::no(name, format!("{said} ({setting}); `uring` polls the ring instead, and the device raises interrupts"))
                .remedy("load the NVMe driver with `nvme.poll_queues=N`; `nowait` and `map` need no polling")
        }
    }
}

fn leases(file: &io::Result<File>) -> CheckResult {
    let name = "leases";
    match file {
        Err(error) => CheckResult::no(name, format!("not tried: {error}")),
        Ok(file) => match probe::write_lease(file) {
            Ok(()) => CheckResult::yes(
                name,
                "tried: open files are detected before they move to the tier",
            ),
            Err(error) => CheckResult::no(
                name,
                format!("{error}: open files cannot be detected here, so `switch` is refused"),
            ),
        },
    }
}

/// Two files that are removed when dropped; only a kill within these microseconds leaves them.
struct Pair([PathBuf; 2]);

impl Drop for Pair {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn exchange(directory: &Path) -> CheckResult {
    let name = "exchange";
    static TRIALS: AtomicU32 = AtomicU32::new(0);
    let (process, trial) = (std::process::id(), TRIALS.fetch_add(1, Ordering::Relaxed));
    let path =
        |which: &str| directory.join(format!(".evermap-lane-check-{process}-{trial}-{which}"));
    let make = |path: &Path| OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    // Removes only files that were made here.
    let mut pair = Pair([PathBuf::new(), PathBuf::new()]);
    for (place, which) in [path("a"), path("b")].into_iter().enumerate() {
        if let Err(error) = make(&which) {
            return CheckResult::no(name, format!("not tried: {error}"));
        }
        pair.0[place] = which;
    }
    match rustix::fs::renameat_with(CWD, &pair.0[0], CWD, &pair.0[1], RenameFlags::EXCHANGE) {
        Ok(()) => {
            CheckResult::yes(name, "tried: two files can be exchanged atomically (RENAME_EXCHANGE)")
        }
        Err(error) => CheckResult::no(
            name,
            format!(
                "{}: files cannot be exchanged atomically, so `switch` is refused",
                io::Error::from(error)
            ),
        ),
    }
}
