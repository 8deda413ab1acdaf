//! Processes as `/proc` describes them, identified by number and start time because the kernel
//! reuses numbers.
//!
//! This module only reads. Results may be outdated when they arrive, so a caller that acts on a
//! process checks its identity first.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags};
use serde::{Deserialize, Serialize};

/// `PF_KTHREAD` in the flags of `/proc/PID/stat`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Identity of a process: number and start time together are unique until the next boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Process {
    /// Process number.
    pub(crate) pid: u32,
    /// Start time in clock ticks since boot.
    pub(crate) start_ticks: u64,
}

impl Process {
    /// Returns the process that has this number now, or `None`.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Stat::of(pid).map(|stat| Self { pid, start_ticks: stat.start_ticks })
    }

    /// Returns the calling process.
    pub(crate) fn this() -> io::Result<Self> {
        Self::of(std::process::id())
            .ok_or_else(|| io::Error::other("/proc does not tell of this process"))
    }

    /// Returns true while the process runs; see [`Stat::is_alive`].
    pub(crate) fn is_alive(&self) -> bool {
        Stat::of(self.pid)
            .is_some_and(|stat| stat.start_ticks == self.start_ticks && stat.is_alive())
    }

    /// Opens a descriptor that becomes readable when the process ends. Returns `None` if it has
    /// ended.
    pub(crate) fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return Ok(None) };
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            // The open descriptor prevents reuse of the number, so compare identities after
            // opening.
            Ok(descriptor) => Ok((Process::of(self.pid) == Some(*self)).then_some(descriptor)),
            Err(rustix::io::Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Fields of `/proc/PID/stat` that this crate uses.
#[derive(Clone, Debug)]
pub(crate) struct Stat {
    pub(crate) name: String,
    pub(crate) state: char,
    pub(crate) parent: u32,
    flags: u64,
    /// Page faults served from memory; the next field counts faults that waited for a disk.
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    /// Processor time in clock ticks.
    pub(crate) processor_ticks: u64,
    /// Threads of the process, including an ended first thread while others run.
    threads: u64,
    pub(crate) start_ticks: u64,
    /// Scheduling policy.
    pub(crate) policy: u64,
}

impl Stat {
    /// Reads the counters of one thread. [`of`](Self::of) reads those of the whole process.
    pub(crate) fn of_thread(pid: u32, thread: u32) -> Option<Self> {
        Self::parse(&text(&format!("/proc/{pid}/task/{thread}/stat"))?)
    }

    /// Reads the counters of a process or thread. Returns `None` if it has ended.
    pub(crate) fn of(id: u32) -> Option<Self> {
        Self::parse(&text(&format!("/proc/{id}/stat"))?)
    }

    /// Parses a line. The name may contain blanks and parentheses, so the other fields are taken
    /// after the last parenthesis.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (before, after) = text.rsplit_once(") ")?;
        let (_, name) = before.split_once('(')?;
        let fields: Vec<&str> = after.split_ascii_whitespace().collect();
        let number = |place: usize| -> Option<u64> { fields.get(place)?.parse().ok() };
        Some(Self {
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            flags: number(6)?,
            minor_faults: number(7)?,
            major_faults: number(9)?,
            processor_ticks: number(11)?.saturating_add(number(12)?),
            threads: number(17)?,
            start_ticks: number(19)?,
            policy: number(38)?,
        })
    }

    /// Returns true while any thread of the process runs. A zombie does not. A process whose first
    /// thread has ended is in the same state, but still has other threads.
    pub(crate) fn is_alive(&self) -> bool {
        match self.state {
            'X' | 'x' => false,
            'Z' => self.threads > 1,
            _ => true,
        }
    }

    /// Returns true for kernel threads, which no lane may move.
    pub(crate) fn is_kernel_thread(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }
}

/// Reads a file of `/proc` that contains a program's name. The name may not be UTF-8: a program may
/// set any bytes, and the kernel cuts names within a character.
pub(crate) fn text(path: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
}

/// Entries of a directory of `/proc` whose names are numbers.
fn numbers(directory: &str) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns all process numbers.
pub(crate) fn all() -> Vec<u32> {
    numbers("/proc")
}

/// Returns the threads of a process, or nothing if it has ended.
pub(crate) fn threads(pid: u32) -> Vec<u32> {
    numbers(&format!("/proc/{pid}/task"))
}

/// Returns the children of these threads of a process, including orphans that were given to it.
/// Without `CONFIG_PROC_CHILDREN` it reads the parent of every process.
pub(crate) fn children(pid: u32, threads: &[u32]) -> Vec<u32> {
    let mut children = Vec::new();
    for thread in threads {
        match fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")) {
            Ok(text) => children
                .extend(text.split_ascii_whitespace().filter_map(|id| id.parse::<u32>().ok())),
            Err(_) if fs::exists(format!("/proc/{pid}/task/{thread}/stat")).unwrap_or(false) => {
                let is_child = |id: &u32| Stat::of(*id).is_some_and(|stat| stat.parent == pid);
                return all().into_iter().filter(is_child).collect();
            }
            Err(_) => {}
        }
    }
    children
}

/// Returns all descendants of these processes, without the processes themselves.
pub(crate) fn descendants(of: &[u32]) -> HashSet<u32> {
    let mut found: HashSet<u32> = of.iter().copied().collect();
    let mut open = of.to_vec();
    while let Some(parent) = open.pop() {
        let children = children(parent, &threads(parent));
        open.extend(children.into_iter().filter(|child| found.insert(*child)));
    }
    for one in of {
        found.remove(one);
    }
    found
}

/// Returns true if the process was started with this entry in its environment. Returns false for
/// processes of other users, whose environment is unreadable.
pub(crate) fn has_in_environment(pid: u32, entry: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|own| own == entry)
}

/// Returns the kernel's boot id, which differs after each boot.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_and_blanks_are_read() {
        let stat = Stat::parse(&line("a) b (c", 'R', 7)).unwrap();
        assert_eq!((stat.name.as_str(), stat.state, stat.parent), ("a) b (c", 'R', 7));
        assert!(stat.is_kernel_thread() && stat.start_ticks == 7);
        let used = (stat.minor_faults, stat.major_faults, stat.processor_ticks);
        assert_eq!(used, (7, 7, 14));
        assert!(Stat::parse("12 (a) R 1").is_none());
    }

    /// Line as the kernel writes it, with the kernel-thread flag set and 7 in all other fields.
    fn line(name: &str, state: char, threads: u32) -> String {
        let fields = (4..=51).map(|field| match field {
            9 => "2097216".to_owned(),
            20 => threads.to_string(),
            _ => "7".to_owned(),
        });
        format!("12 ({name}) {state} {}", fields.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_process_is_alive_while_any_of_its_threads_runs() {
        let is_alive = |state, threads| Stat::parse(&line("a", state, threads)).unwrap().is_alive();
        assert!(is_alive('R', 1) && is_alive('Z', 2));
        assert!(!is_alive('Z', 1) && !is_alive('X', 2));
    }

    #[test]
    fn a_name_that_is_not_utf8_can_be_read() {
        let named = std::thread::spawn(|| {
            rustix::thread::set_name(c"cut\xc3").unwrap();
            let id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            let stat = Stat::of_thread(std::process::id(), id);
            (stat.unwrap().name, Process::of(id).is_some())
        });
        assert_eq!(named.join().unwrap(), ("cut\u{fffd}".to_owned(), true));
    }

    #[test]
    fn a_reused_number_is_another_process() {
        let this = Process::this().unwrap();
        assert!(this.is_alive() && this.descriptor().unwrap().is_some());
        let other = Process { start_ticks: this.start_ticks + 1, ..this };
        assert!(!other.is_alive() && other.descriptor().unwrap().is_none());
    }

    #[test]
    fn children_and_their_environment_are_found() {
        let mut command = std::process::Command::new("sleep");
        let mut child = command.arg("60").env("EVERMAP_TEST", "here").spawn().unwrap();
        let me = std::process::id();
        assert!(descendants(&[me]).contains(&child.id()));
        assert!(!descendants(&[me, child.id()]).contains(&child.id()));
        // The environment is readable once the child has executed `sleep`.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !has_in_environment(child.id(), b"EVERMAP_TEST=here") {
            assert!(std::time::Instant::now() < until);
        }
        assert!(!has_in_environment(child.id(), b"EVERMAP_TEST=her"));
        let process = Process::of(child.id()).unwrap();
        child.kill().unwrap();
        // The child is a zombie until it is waited for.
        while process.is_alive() {
            assert!(std::time::Instant::now() < until);
        }
        child.wait().unwrap();
        assert_eq!(Process::of(child.id()), None);
    }
}
