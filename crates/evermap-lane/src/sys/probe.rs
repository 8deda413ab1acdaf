//! Calls that are tried only to learn whether they are possible. Each leaves everything as it was when it returns.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Pid, WaitOptions, waitpid};

use super::lease;

/// Bytes of a trial: a page, and a multiple of what direct reads ask for nearly everywhere.
pub(crate) const TRIAL_BYTES: usize = 4096;

/// A page that direct reads may go to.
#[repr(align(4096))]
struct Page([u8; TRIAL_BYTES]);

/// Whether this process could give a program mounts of its own: with the rights that it has, or (`as_user`) in a user namespace
/// of its own, too. Tried in a child that ends at once.
pub(crate) fn private_mounts(as_user: bool) -> io::Result<()> {
    let namespaces = libc::CLONE_NEWNS | if as_user { libc::CLONE_NEWUSER } else { 0 };
    // SAFETY: the child only makes system calls with values that are on its stack, and ends by `_exit`: it takes no lock and runs no
    // destructor that another thread of this process could have been in the middle of.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(mounts_of_child(namespaces));
        }
        child
    };
    let Some(child) = Pid::from_raw(child).filter(|_| child > 0) else {
        return Err(io::Error::last_os_error());
    };
    let status = loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            ended => break ended?,
        }
    };
    match status.and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code)),
        None => Err(io::Error::other("the child that tried it was killed")),
    }
}

/// The number of the error, which fits into an exit code; 0 if there is none.
///
/// # Safety
/// For a child of a fork, that ends right after: the namespaces stay.
unsafe fn mounts_of_child(namespaces: libc::c_int) -> libc::c_int {
    // SAFETY: calls without memory, but for constant strings.
    let done = unsafe {
        libc::unshare(namespaces) == 0
            && libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                ptr::null(),
            ) == 0
    };
    if done { 0 } else { io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) }
}

/// Whether stores to a mapping of the file reach what keeps them without a call (`MAP_SYNC`): only where the file system maps the device
/// itself. The file needs a page of bytes.
pub(crate) fn map_sync(file: &File) -> io::Result<()> {
    let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    // SAFETY: a new mapping at a place that the kernel chooses; nothing reads or writes it, and it ends here.
    unsafe {
        let mapping = mmap(ptr::null_mut(), TRIAL_BYTES, ProtFlags::READ, flags, file, 0)?;
        munmap(mapping, TRIAL_BYTES)?;
    }
    Ok(())
}

/// Whether one is told when somebody else opens the file: a write lease, given back at once.
pub(crate) fn write_lease(file: &File) -> io::Result<()> {
    lease::take(file.as_fd(), lease::Kept::All)?;
    lease::release(file.as_fd());
    Ok(())
}

/// Whether there may be a ring (`io_uring`).
pub(crate) fn ring() -> io::Result<()> {
    IoUring::new(2).map(drop)
}

/// How often a ring is asked for the completion of a read before it is given up: once a millisecond.
const ASKED_MAX: u32 = 500;

/// Reads the first page of a file that is open for direct reads by a ring whose completions are polled for at the device. Gives how much came.
pub(crate) fn polled_read(file: &File) -> io::Result<usize> {
    let mut ring: IoUring = IoUring::builder().setup_iopoll().build(2)?;
    let page = Box::leak(Box::new(Page([0; TRIAL_BYTES])));
    let to = page.0.as_mut_ptr();
    let read = opcode::Read::new(types::Fd(file.as_raw_fd()), to, TRIAL_BYTES as u32).build();
    // SAFETY: the file is open until the read is over or the ring ends, which holds it by itself; the page stays until then, and for good if
    // its end is never told.
    unsafe { ring.submission().push(&read) }.map_err(io::Error::other)?;
    ring.submit()?;
    for _ in 0..ASKED_MAX {
        // What the kernel handed to a worker is not there at the first look.
        ring.submit_and_wait(1)?;
        if let Some(entry) = ring.completion().next() {
            // SAFETY: it came from a box, and the kernel is done with it.
            drop(unsafe { Box::from_raw(ptr::from_mut(page)) });
            return match entry.result() {
                count @ 0.. => Ok(count as usize),
                errno => Err(io::Error::from_raw_os_error(-errno)),
            };
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Reads the first page of a file that is open for direct reads. Gives how much came.
pub(crate) fn direct_read(file: &File) -> io::Result<usize> {
    let mut page = Box::new(Page([0; TRIAL_BYTES]));
    Ok(rustix::io::pread(file, &mut page.0, 0)?)
}

/// Fills the first page of a file, past the cache if it is open so.
pub(crate) fn write_page(file: &File) -> io::Result<()> {
    let page = Box::new(Page([b'.'; TRIAL_BYTES]));
    match rustix::io::pwrite(file, &page.0, 0)? {
        TRIAL_BYTES => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}
