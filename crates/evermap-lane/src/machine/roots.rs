//! Where the kernel tells of itself. Everything in `machine` reads through here, so that a test can show it another machine.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use super::CpuList;

/// No file of `/proc` or `/sys` that is read here is longer: the interrupts of a machine with 512 cores are some MiB.
const BYTES_MAX: u64 = 32 << 20;

/// Where `/proc` and `/sys` are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into() }
    }
}

impl Roots {
    /// Whether this is the machine itself, so that what a system call says counts, too.
    pub(crate) fn are_real(&self) -> bool {
        *self == Self::default()
    }

    /// A path as the kernel says it (a mount in `/proc/self/mountinfo`), as one below these roots.
    pub(crate) fn resolve(&self, path: &Path) -> PathBuf {
        for (real, here) in [("/proc", &self.proc), ("/sys", &self.sys)] {
            if let Ok(rest) = path.strip_prefix(real) {
                return joined(here, rest);
            }
        }
        path.to_owned()
    }

    /// The text of a file of `/proc`.
    pub(crate) fn proc_text(&self, name: impl AsRef<Path>) -> io::Result<String> {
        text(&self.proc.join(name))
    }

    /// The text of a file of `/sys`, without blanks around it; none where it cannot be read.
    pub(crate) fn sys_text(&self, name: impl AsRef<Path>) -> Option<String> {
        text(&self.sys.join(name)).ok().map(|text| text.trim().to_owned())
    }

    /// Whether a core runs. Where nothing says so, it does.
    pub(crate) fn is_online(&self, core: u32) -> bool {
        let online = self.sys_text("devices/system/cpu/online");
        let online = online.and_then(|text| text.parse::<CpuList>().ok());
        online.is_none_or(|online| online.contains(core))
    }

    /// What `/proc` says in one file about this thread, or else about its process.
    pub(crate) fn own_text(&self, name: &str) -> io::Result<String> {
        self.proc_text(Path::new("thread-self").join(name))
            .or_else(|_| self.proc_text(Path::new("self").join(name)))
    }
}

/// The text of a short file: what is no UTF-8 in it is replaced, what is too much is left out.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `directory/rest` with only the ordinary parts of `rest`: nothing leads out of the directory, and nothing stays a `/.` behind it.
pub(crate) fn joined(directory: &Path, rest: &Path) -> PathBuf {
    let ordinary = rest.components().filter(|part| matches!(part, Component::Normal(_)));
    ordinary.fold(directory.to_owned(), |path, part| path.join(part))
}
