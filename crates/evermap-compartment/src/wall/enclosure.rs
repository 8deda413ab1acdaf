//! A wall around another program, which starts behind it.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::denied::{self, Exceptions};
use super::files::{self, Files};
use super::{filter, privileges};
use crate::error::Result;

/// Paths that system programs need to start: binaries, libraries and linker configuration. Reading
/// includes executing.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/locale.conf",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/proc",
    "/sys/devices/system/cpu",
    "/dev/random",
    "/dev/urandom",
];
/// Devices that store nothing.
const SINKS: &[&str] = &["/dev/null", "/dev/zero", "/dev/full"];
/// Network names and certificates.
const NETWORK: &[&str] = &[
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/run/systemd/resolve",
];

/// Wall for a program started behind it. The program can open only the named paths. It can make
/// ordinary system calls, but none that reach other processes, the machine, or risky parts of the
/// kernel. A root program keeps only the capabilities that concern files and users.
#[derive(Clone, Debug)]
#[must_use = "nothing is enclosed before `enclose`"]
pub struct Enclosure {
    files: Files,
    system: bool,
    exceptions: Exceptions,
    best_effort: bool,
}

impl Default for Enclosure {
    fn default() -> Enclosure {
        Enclosure::new()
    }
}

impl Enclosure {
    /// Creates a wall that allows the paths system programs need to start, and no others.
    pub fn new() -> Enclosure {
        let exceptions = Exceptions::default();
        Enclosure { files: Files::default(), system: true, exceptions, best_effort: false }
    }

    /// Allows reading and executing files at or below a path.
    pub fn read(mut self, path: impl AsRef<Path>) -> Enclosure {
        self.files.read(path.as_ref());
        self
    }

    /// Allows reading, executing, writing, creating, renaming and removing files at or below a
    /// path.
    pub fn write(mut self, path: impl AsRef<Path>) -> Enclosure {
        self.files.write(path.as_ref());
        self
    }

    /// Removes the paths that system programs need to start, such as `/usr` and `/lib`.
    pub fn no_system(mut self) -> Enclosure {
        self.system = false;
        self
    }

    /// Allows sockets of every kind, including those of local services.
    pub fn network(mut self) -> Enclosure {
        self.exceptions.network = true;
        self
    }

    /// Allows changing modes, owners, times and extended attributes of *any* file that the user can
    /// change them of, because Landlock does not restrict these calls.
    pub fn attributes(mut self) -> Enclosure {
        self.exceptions.attributes = true;
        self
    }

    /// Proceeds without Landlock if the kernel has none, with the system call filter alone. The
    /// program can then open any file that its user can.
    pub fn best_effort(mut self) -> Enclosure {
        self.best_effort = true;
        self
    }

    /// Makes a command start behind the wall, with no descriptors other than input, output and
    /// error.
    ///
    /// # Errors
    /// `Path` for a path that does not exist, `NoLandlock`, `NoFilter`. Refusals at the moment of
    /// starting are reported by the command's `spawn`.
    pub fn enclose(mut self, command: &mut Command) -> Result<()> {
        if self.system {
            self.files.read_if_exists(SYSTEM);
            self.files.write_if_exists(SINKS);
        }
        if self.system && self.exceptions.network {
            self.files.read_if_exists(NETWORK);
        }
        let mut rules = Some(self.files.rules(self.best_effort)?);
        let without_clone3 = filter::without_clone3()?;
        let program = denied::program(self.exceptions)?;
        let close = move || {
            privileges::drop_most()?;
            close_descriptors()?;
            if let Some(rules) = rules.take() {
                files::restrict(rules, 1, false).map_err(io::Error::other)?;
            }
            for program in [&without_clone3, &program] {
                seccompiler::apply_filter(program).map_err(io::Error::other)?;
            }
            Ok(())
        };
        // SAFETY: between fork and exec, the closure makes system calls with data prepared before
        // the fork. It allocates only after a failed call, which the C library permits in a forked
        // child.
        unsafe { command.pre_exec(close) };
        Ok(())
    }
}

/// Marks all descriptors except the first three to be closed on exec.
fn close_descriptors() -> io::Result<()> {
    let (first, last): (libc::c_uint, libc::c_uint) = (3, libc::c_uint::MAX);
    // SAFETY: the call takes no pointers and closes no descriptor yet.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
