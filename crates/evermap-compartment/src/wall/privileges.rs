//! Capabilities of a program started behind a wall.
//!
//! Ordinary users have none. A root command keeps only those that concern its own files and users.
//! Other capabilities bypass the wall: with `CAP_PERFMON` alone, it could read the environment of
//! every process.

use std::io;

/// `CAP_CHOWN`, `CAP_DAC_OVERRIDE`, `CAP_DAC_READ_SEARCH`, `CAP_FOWNER`, `CAP_FSETID`,
/// `CAP_SETGID`, `CAP_SETUID`, `CAP_NET_BIND_SERVICE` of `linux/capability.h`.
const KEPT: [libc::c_ulong; 8] = [0, 1, 2, 3, 4, 6, 7, 10];

/// Drops all other capabilities for the next program executed. Makes only system calls.
pub(super) fn drop_most() -> io::Result<()> {
    let zero: libc::c_ulong = 0;
    // SAFETY: the call takes no pointers.
    unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, zero, zero, zero);
    }
    for capability in (0..64).filter(|capability| !KEPT.contains(capability)) {
        // SAFETY: the call takes no pointers.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, zero, zero, zero) } == 0 {
            continue;
        }
        match io::Error::last_os_error().raw_os_error() {
            // The kernel knows no higher capability numbers.
            Some(libc::EINVAL) => return Ok(()),
            // A process that cannot drop capabilities has none to pass on.
            Some(libc::EPERM) => return Ok(()),
            _ => return Err(io::Error::last_os_error()),
        }
    }
    Ok(())
}
