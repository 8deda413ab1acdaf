//! A wall around another program, which is started inside of it.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::denied::{self, Exceptions};
use super::files::{self, Files};
use super::{filter, privileges};
use crate::error::Result;

/// What programs of the system need to start: themselves, their libraries, and the linker's notes.
/// Reading includes executing.
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
/// Devices that keep nothing.
const SINKS: &[&str] = &["/dev/null", "/dev/zero", "/dev/full"];
/// Names and certificates of the network.
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

/// A wall for a program that is started inside of it. The program may open what is named here, and
/// nothing else; it may do what programs do, except for a list of calls that reach for other
/// processes, the machine, or parts of the kernel that it has no business with. Of root's capabilities
/// it keeps those about files and users.
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
    /// A wall that lets the system's programs start, and nothing else be opened.
    pub fn new() -> Enclosure {
        let exceptions = Exceptions::default();
        Enclosure { files: Files::default(), system: true, exceptions, best_effort: false }
    }

    /// Lets files at or below a path be read and executed.
    pub fn read(mut self, path: impl AsRef<Path>) -> Enclosure {
        self.files.read(path.as_ref());
        self
    }

    /// Lets files at or below a path be read, executed, written, made, renamed and removed.
    pub fn write(mut self, path: impl AsRef<Path>) -> Enclosure {
        self.files.write(path.as_ref());
        self
    }

    /// Without the paths that programs of the system need to start: `/usr`, `/lib` and so on.
    pub fn no_system(mut self) -> Enclosure {
        self.system = false;
        self
    }

    /// Lets the program use sockets of every kind, those of services on this machine included.
    pub fn network(mut self) -> Enclosure {
        self.exceptions.network = true;
        self
    }

    /// Lets the program change modes, owners, times and extended attributes: of *any* file that its
    /// user may change them of, for Landlock has no say in these.
    pub fn attributes(mut self) -> Enclosure {
        self.exceptions.attributes = true;
        self
    }

    /// Goes on where the kernel has no Landlock, with the filter of system calls alone: the program may
    /// open what its user may.
    pub fn best_effort(mut self) -> Enclosure {
        self.best_effort = true;
        self
    }

    /// Has a command start inside, with no descriptors but its input, output and error.
    ///
    /// # Errors
    /// `Path` for a path that is not there, `NoLandlock`, `NoFilter`. What the kernel refuses at the
    /// last moment is an error of starting the command.
    pub fn enclose(mut self, command: &mut Command) -> Result<()> {
        if self.system {
            self.files.read_if_there(SYSTEM);
            self.files.write_if_there(SINKS);
        }
        if self.system && self.exceptions.network {
            self.files.read_if_there(NETWORK);
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
        // SAFETY: between fork and exec the closure makes system calls with what was prepared before; only
        // a call that fails allocates, which the C library sees to in a forked child.
        unsafe { command.pre_exec(close) };
        Ok(())
    }
}

/// Has all descriptors but the first three closed when the command starts.
fn close_descriptors() -> io::Result<()> {
    let (first, last): (libc::c_uint, libc::c_uint) = (3, libc::c_uint::MAX);
    // SAFETY: the call takes no pointers, and closes nothing yet.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
