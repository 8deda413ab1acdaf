//! The capabilities of a program that is started inside of a wall.
//!
//! An ordinary user has none. A command of root's keeps those about its own files and users; others are
//! ways around the wall: with `CAP_PERFMON` alone it could read the environment of every process.

use std::io;

/// `CAP_CHOWN`, `CAP_DAC_OVERRIDE`, `CAP_DAC_READ_SEARCH`, `CAP_FOWNER`, `CAP_FSETID`, `CAP_SETGID`,
/// `CAP_SETUID`, `CAP_NET_BIND_SERVICE` of `linux/capability.h`.
const KEPT: [libc::c_ulong; 8] = [0, 1, 2, 3, 4, 6, 7, 10];

/// Drops all others, for what is executed next. Makes system calls only.
pub(super) fn drop_most() -> io::Result<()> {
    let zero: libc::c_ulong = 0;
    // SAFETY: the call takes no pointers.
    unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, zero, zero, zero);
    }
    for capability in (0..64).filter(|capability| !KEPT.contains(capability)) {
        // SAFETY: as above.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, zero, zero, zero) } == 0 {
            continue;
        }
        match io::Error::last_os_error().raw_os_error() {
            // The kernel knows no more of them.
            Some(libc::EINVAL) => return Ok(()),
            // Who may not drop any has none to give to what is executed.
            Some(libc::EPERM) => return Ok(()),
            _ => return Err(io::Error::last_os_error()),
        }
    }
    Ok(())
}
