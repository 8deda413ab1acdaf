//! Processes as `/proc` tells of them: by number and beginning, since numbers are given again.
//!
//! Only looks. All of it can be over when it is read: whoever acts on a process checks who it is first.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags};
use serde::{Deserialize, Serialize};

/// `PF_KTHREAD` of the kernel's flags in `/proc/PID/stat`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// One process: no other one ever has both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Process {
    /// Its number.
    pub(crate) pid: u32,
    /// When it began, in clock ticks since boot.
    pub(crate) start_ticks: u64,
}

impl Process {
    /// The one that has this number now; none if nobody has.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Stat::of(pid).map(|stat| Self { pid, start_ticks: stat.start_ticks })
    }

    /// The one that calls.
    pub(crate) fn this() -> io::Result<Self> {
        Self::of(std::process::id())
            .ok_or_else(|| io::Error::other("/proc does not tell of this process"))
    }

    /// Whether it still runs, as [`Stat::is_alive`] has it.
    pub(crate) fn is_alive(&self) -> bool {
        Stat::of(self.pid)
            .is_some_and(|stat| stat.start_ticks == self.start_ticks && stat.is_alive())
    }

    /// A descriptor that becomes readable at its end; none if it is gone.
    pub(crate) fn descriptor(&self) -> io::Result<Option<OwnedFd>> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return Ok(None) };
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            // The descriptor keeps the number from being given again, so that the look comes second.
            Ok(descriptor) => Ok((Process::of(self.pid) == Some(*self)).then_some(descriptor)),
            Err(rustix::io::Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// What is used of `/proc/PID/stat`.
#[derive(Clone, Debug)]
pub(crate) struct Stat {
    pub(crate) name: String,
    pub(crate) state: char,
    pub(crate) parent: u32,
    flags: u64,
    /// Faults that were served from memory, and those that waited for a disk.
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    /// Processor time, in clock ticks.
    pub(crate) processor_ticks: u64,
    /// Of the process, the first one among them for as long as there are others.
    threads: u64,
    pub(crate) start_ticks: u64,
}

impl Stat {
    /// Of one thread: [`of`](Self::of) counts for all of its process.
    pub(crate) fn of_thread(pid: u32, thread: u32) -> Option<Self> {
        Self::parse(&text(&format!("/proc/{pid}/task/{thread}/stat"))?)
    }

    /// Of a process or a thread; none if it is gone.
    pub(crate) fn of(id: u32) -> Option<Self> {
        Self::parse(&text(&format!("/proc/{id}/stat"))?)
    }

    /// The name may have blanks and parentheses in it: what follows begins behind the last one.
    fn parse(text: &str) -> Option<Self> {
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
        })
    }

    /// Whether any thread of it runs: one that ended and waits to be asked how doesn't. A process whose first thread has ended looks
    /// the same, and runs for as long as it has another one.
    pub(crate) fn is_alive(&self) -> bool {
        match self.state {
            'X' | 'x' => false,
            'Z' => self.threads > 1,
            _ => true,
        }
    }

    /// Whether the kernel runs it for itself: such threads are nobody's to move.
    pub(crate) fn is_of_kernel(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }
}

/// A file of `/proc` that has a program's name in it, which need not be text: a program may choose any bytes, and the kernel cuts within letters.
pub(crate) fn text(path: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
}

/// The numbers that are the names in a directory of `/proc`.
fn numbers(directory: &str) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// All processes.
pub(crate) fn all() -> Vec<u32> {
    numbers("/proc")
}

/// The threads of a process; none if it is gone.
pub(crate) fn threads(pid: u32) -> Vec<u32> {
    numbers(&format!("/proc/{pid}/task"))
}

/// The processes that these threads of a process started, or that came to it when their parents ended. Where the kernel doesn't keep
/// lists of them (`CONFIG_PROC_CHILDREN`), all processes are looked at.
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

/// The descendants of these processes, themselves not among them. Each is looked at once.
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

/// Whether the process was started with this in its environment. Not for processes of others.
pub(crate) fn has_in_environment(pid: u32, entry: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|own| own == entry)
}

/// What differs from boot to boot.
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
        assert!(stat.is_of_kernel() && stat.start_ticks == 7);
        let used = (stat.minor_faults, stat.major_faults, stat.processor_ticks);
        assert_eq!(used, (7, 7, 14));
        assert!(Stat::parse("12 (a) R 1").is_none());
    }

    /// As the kernel writes it, with a flag of its own and seven of everything else.
    fn line(name: &str, state: char, threads: u32) -> String {
        let fields = (4..=51).map(|field| match field {
            9 => "2097216".to_owned(),
            20 => threads.to_string(),
            _ => "7".to_owned(),
        });
        format!("12 ({name}) {state} {}", fields.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_runs_while_it_has_others() {
        let is_alive = |state, threads| Stat::parse(&line("a", state, threads)).unwrap().is_alive();
        assert!(is_alive('R', 1) && is_alive('Z', 2));
        assert!(!is_alive('Z', 1) && !is_alive('X', 2));
    }

    #[test]
    fn a_name_that_is_no_text_hides_nobody() {
        let named = std::thread::spawn(|| {
            rustix::thread::set_name(c"cut\xc3").unwrap();
            let id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            let stat = Stat::of_thread(std::process::id(), id);
            (stat.unwrap().name, Process::of(id).is_some())
        });
        assert_eq!(named.join().unwrap(), ("cut\u{fffd}".to_owned(), true));
    }

    #[test]
    fn a_number_that_was_given_again_is_another_process() {
        let this = Process::this().unwrap();
        assert!(this.is_alive() && this.descriptor().unwrap().is_some());
        let other = Process { start_ticks: this.start_ticks + 1, ..this };
        assert!(!other.is_alive() && other.descriptor().unwrap().is_none());
    }

    #[test]
    fn children_are_found_and_their_environment() {
        let mut command = std::process::Command::new("sleep");
        let mut child = command.arg("60").env("EVERMAP_TEST", "here").spawn().unwrap();
        let me = std::process::id();
        assert!(descendants(&[me]).contains(&child.id()));
        assert!(!descendants(&[me, child.id()]).contains(&child.id()));
        // Its environment is there once it has become `sleep`.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !has_in_environment(child.id(), b"EVERMAP_TEST=here") {
            assert!(std::time::Instant::now() < until);
        }
        assert!(!has_in_environment(child.id(), b"EVERMAP_TEST=her"));
        let process = Process::of(child.id()).unwrap();
        child.kill().unwrap();
        // It is a zombie until it is waited for.
        while process.is_alive() {
            assert!(std::time::Instant::now() < until);
        }
        child.wait().unwrap();
        assert_eq!(Process::of(child.id()), None);
    }
}
