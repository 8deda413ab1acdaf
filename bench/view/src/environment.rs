//! Isolation of the measured programs.
//!
//! The programs get an empty network, so that remote resources are unreachable for all of them, at
//! once and on any machine. Processes that a program leaves behind become children of this process,
//! which ends them.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use harness::Outcome;
use rustix::thread::UnshareFlags;

/// Isolates this process. Returns true if it has no network. Call it before any thread is started.
pub fn prepare() -> Outcome<bool> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let no_network = unshare(UnshareFlags::NEWNET) || network_without_privilege();
    if no_network {
        loopback_up()?;
    }
    Ok(no_network)
}

fn unshare(flags: UnshareFlags) -> bool {
    // SAFETY: unshares namespaces of networks and users only, never the table of open files.
    unsafe { rustix::thread::unshare_unsafe(flags) }.is_ok()
}

/// Enters a new network in a user namespace, as an ordinary user may. User and group stay the same.
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

/// Brings up the loopback device, which is down in a new network.
fn loopback_up() -> Outcome {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: all-zero bytes are a valid `ifreq`; it lives during the call, which reads its name
    // and its flags.
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

/// Returns a command with a clean environment and this home folder.
pub fn command(program: impl AsRef<std::ffi::OsStr>, home: &Path) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    command.env_clear().env("PATH", path).env("HOME", home).env("LANG", "C.UTF-8");
    // The registry of stores is in the home folder, too, not in the user's own.
    command.env("TMPDIR", home).env("XDG_RUNTIME_DIR", home);
    command
}
