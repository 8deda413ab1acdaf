//! Walls around everything that is measured, and the end of it all when a signal comes.
//!
//! The programs get a network with nothing in it, so that all of them find remote resources unreachable, at once and
//! on any machine. Mounts are private to this process, so that they are gone with it however it ends. Processes that
//! a program leaves behind become children of this one, which ends them.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::UnshareFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::Outcome;

/// What could be had.
pub struct Walls {
    pub no_network: bool,
    /// Mounts are possible, and gone with this process.
    pub private_mounts: bool,
}

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Must come before any thread is started.
pub fn prepare() -> Outcome<Walls> {
    let flag = INTERRUPTED.get_or_init(Default::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let private_mounts = unshare(UnshareFlags::NEWNS) && {
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).is_ok()
    };
    let no_network = unshare(UnshareFlags::NEWNET) || network_without_privilege();
    if no_network {
        loopback_up()?;
    }
    Ok(Walls { no_network, private_mounts })
}

fn unshare(flags: UnshareFlags) -> bool {
    // SAFETY: only namespaces of mounts, networks and users are left, never the table of files.
    unsafe { rustix::thread::unshare_unsafe(flags) }.is_ok()
}

/// An ordinary user may leave the network in a user namespace of its own, in which it stays who it is.
fn network_without_privilege() -> bool {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    if user.is_root() || !unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET) {
        return false;
    }
    let (user, group) = (user.as_raw(), group.as_raw());
    let wrote = std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))
        .and_then(|()| std::fs::write("/proc/self/setgroups", "deny"))
        .and_then(|()| std::fs::write("/proc/self/gid_map", format!("{group} {group} 1")));
    wrote.is_ok()
}

/// In a new network, even the loopback device is down.
fn loopback_up() -> Outcome {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: any bytes are an `ifreq`; it lives during the call, which reads its name and its flags.
    let result = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request)
    };
    match result {
        0 => Ok(()),
        _ => Err(format!("the loopback device: {}", std::io::Error::last_os_error()).into()),
    }
}

/// An error once a signal asked for the end: everything on the way out is undone by what it belongs to.
pub fn go_on() -> Outcome {
    match INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
        true => Err("interrupted".into()),
        false => Ok(()),
    }
}

/// A program as it is started by a user who has nothing but a home folder.
pub fn command(program: impl AsRef<std::ffi::OsStr>, home: &Path) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    command.env_clear().env("PATH", path).env("HOME", home).env("LANG", "C.UTF-8");
    // The store's addresses are noted in the home folder, too, and not in the user's own.
    command.env("TMPDIR", home).env("XDG_RUNTIME_DIR", home);
    command
}

/// Where a program of this name would be started from.
pub fn find_program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join(name));
    programs.find(|program| rustix::fs::access(program, rustix::fs::Access::EXEC_OK).is_ok())
}
