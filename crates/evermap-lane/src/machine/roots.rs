//! Directories of the kernel's files. All of `machine` reads through them, so that tests can
//! substitute another machine.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use super::CpuList;

/// Maximum size of a file. The interrupts of a machine with 512 cores take some MiB.
const BYTES_MAX: u64 = 32 << 20;

/// Directories that stand for `/proc` and `/sys`.
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
    /// Returns true for the real directories, so that system calls describe the same machine.
    pub(crate) fn are_real(&self) -> bool {
        *self == Self::default()
    }

    /// Translates a path of the kernel (a mount in `/proc/self/mountinfo`) to one below these
    /// roots.
    pub(crate) fn resolve(&self, path: &Path) -> PathBuf {
        for (real, here) in [("/proc", &self.proc), ("/sys", &self.sys)] {
            if let Ok(rest) = path.strip_prefix(real) {
                return joined(here, rest);
            }
        }
        path.to_owned()
    }

    /// Text of a file of `/proc`.
    pub(crate) fn proc_text(&self, name: impl AsRef<Path>) -> io::Result<String> {
        text(&self.proc.join(name))
    }

    /// Text of a file of `/sys`, without surrounding blanks. `None` if it is unreadable.
    pub(crate) fn sys_text(&self, name: impl AsRef<Path>) -> Option<String> {
        text(&self.sys.join(name)).ok().map(|text| text.trim().to_owned())
    }

    /// Returns true if a core is online, or if that is unknown.
    pub(crate) fn is_online(&self, core: u32) -> bool {
        let online = self.sys_text("devices/system/cpu/online");
        let online = online.and_then(|text| text.parse::<CpuList>().ok());
        online.is_none_or(|online| online.contains(core))
    }

    /// Text of a file of `/proc` about this thread, or else about its process.
    pub(crate) fn own_text(&self, name: &str) -> io::Result<String> {
        self.proc_text(Path::new("thread-self").join(name))
            .or_else(|_| self.proc_text(Path::new("self").join(name)))
    }
}

/// Text of a short file. Replaces invalid UTF-8 and cuts the text at the maximum size.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Joins the ordinary components of `rest` to `directory`. The result is never outside of the
/// directory and never ends in `/.`.
pub(crate) fn joined(directory: &Path, rest: &Path) -> PathBuf {
    let ordinary = rest.components().filter(|part| matches!(part, Component::Normal(_)));
    ordinary.fold(directory.to_owned(), |path, part| path.join(part))
}
