//! Trial calls that find out whether an operation is possible. Each undoes its effects before it
//! returns.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Pid, WaitOptions, waitpid};

use super::lease;

/// Bytes of a trial: a page, which satisfies the alignment of direct reads nearly everywhere.
pub(crate) const TRIAL_BYTES: usize = 4096;

/// Page aligned for direct reads.
#[repr(align(4096))]
struct Page([u8; TRIAL_BYTES]);

/// Checks whether this process can give a program a private mount namespace: with its present
/// rights, or (`as_user`) in a new user namespace. Tries it in a child that ends at once.
pub(crate) fn private_mounts(as_user: bool) -> io::Result<()> {
    let namespaces = libc::CLONE_NEWNS | if as_user { libc::CLONE_NEWUSER } else { 0 };
    // SAFETY: the child only makes system calls with values on its stack and ends by `_exit`. It
    // takes no lock and runs no destructor that another thread of this process could have been
    // within.
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
        None => Err(io::Error::other("the child of the trial was killed")),
    }
}

/// Returns the error number, which fits into an exit code, or 0 on success.
///
/// # Safety
/// Only for a forked child that ends right afterwards: its namespaces stay changed.
unsafe fn mounts_of_child(namespaces: libc::c_int) -> libc::c_int {
    // SAFETY: the calls access no memory except constant strings.
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

/// Checks whether stores to a mapping of the file become durable without a call (`MAP_SYNC`), which
/// only file systems that map the device itself support. The file needs at least a page.
pub(crate) fn map_sync(file: &File) -> io::Result<()> {
    let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    // SAFETY: a new mapping at an address that the kernel chooses; it is unmapped here without
    // access.
    unsafe {
        let mapping = mmap(ptr::null_mut(), TRIAL_BYTES, ProtFlags::READ, flags, file, 0)?;
        munmap(mapping, TRIAL_BYTES)?;
    }
    Ok(())
}

/// Checks whether a write lease can be taken on the file. Releases it at once.
pub(crate) fn write_lease(file: &File) -> io::Result<()> {
    lease::take(file.as_fd(), lease::LeaseKind::Write)?;
    lease::release(file.as_fd());
    Ok(())
}

/// Checks whether a ring (`io_uring`) can be made.
pub(crate) fn ring() -> io::Result<()> {
    IoUring::new(2).map(drop)
}

/// Maximum number of polls for the completion of a read: one a millisecond.
const ASKED_MAX: u32 = 500;

/// Reads the first page of a file opened for direct reads with a ring that polls the device.
/// Returns the number of bytes read.
pub(crate) fn polled_read(file: &File) -> io::Result<usize> {
    let mut ring: IoUring = IoUring::builder().setup_iopoll().build(2)?;
    let page = Box::leak(Box::new(Page([0; TRIAL_BYTES])));
    let to = page.0.as_mut_ptr();
    let read = opcode::Read::new(types::Fd(file.as_raw_fd()), to, TRIAL_BYTES as u32).build();
    // SAFETY: the file is open until the read completes or the ring ends, and the ring holds its
    // own reference. The page is leaked, so it stays valid even if the read never completes.
    unsafe { ring.submission().push(&read) }.map_err(io::Error::other)?;
    ring.submit()?;
    for _ in 0..ASKED_MAX {
        // A read that the kernel handed to a worker is not complete at the first poll.
        ring.submit_and_wait(1)?;
        if let Some(entry) = ring.completion().next() {
            // SAFETY: the page came from a box, and the kernel has finished with it.
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

/// Reads the first page of a file opened for direct reads. Returns the number of bytes read.
pub(crate) fn direct_read(file: &File) -> io::Result<usize> {
    let mut page = Box::new(Page([0; TRIAL_BYTES]));
    Ok(rustix::io::pread(file, &mut page.0, 0)?)
}

/// Writes the first page of a file, with direct I/O if the file was opened that way.
pub(crate) fn write_page(file: &File) -> io::Result<()> {
    let page = Box::new(Page([b'.'; TRIAL_BYTES]));
    match rustix::io::pwrite(file, &page.0, 0)? {
        TRIAL_BYTES => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}
