//! The replaced functions: the next definitions after the shim, in the C library or in another
//! preloaded library.
//!
//! All are looked up before `main`. A later lookup could wait for the dynamic linker's lock, whose
//! holder may wait for a lock of the caller. They are called as functions and not as system calls,
//! for the sake of other preloaded libraries, and because `read` and `close` are cancellation
//! points. A cancelled thread unwinds through its caller, so every function that can wait is
//! `C-unwind`.

use std::ffi::{CStr, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Function found by name.
pub(crate) struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Next {
        Next { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name is a null-terminated string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $symbol:literal, $failed:expr;)*) => {
        #[allow(non_upper_case_globals, reason = "named like the functions")]
        mod next {
            use super::Next;
            $(pub(super) static $name: Next = Next::new($symbol);)*
        }

        /// Looks up all functions.
        pub(crate) fn find_all() {
            $(next::$name.address();)*
        }

        $(
            #[allow(clippy::unused_unit, reason = "one of them returns `()`")]
            /// Calls the function of this name.
            ///
            /// # Safety
            ///
            /// The contract of the function of this name.
            pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
                let address = next::$name.address();
                if address.is_null() {
                    crate::inside::set_errno(libc::ENOSYS);
                    return $failed;
                }
                // SAFETY: the C library's function of this name has this type, and the caller meets
                // its contract.
                unsafe {
                    let function = std::mem::transmute::<
                        *mut c_void,
                        unsafe extern "C-unwind" fn($($type),*) -> $result,
                    >(address);
                    function($($argument),*)
                }
            }
        )*
    };
}

functions! {
    mmap(address: *mut c_void, bytes: usize, protection: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void,
        c"mmap", libc::MAP_FAILED;
    munmap(address: *mut c_void, bytes: usize) -> c_int, c"munmap", -1;
    mremap(address: *mut c_void, bytes: usize, new_bytes: usize, flags: c_int, new_address: *mut c_void) -> *mut c_void,
        c"mremap", libc::MAP_FAILED;
    madvise(address: *mut c_void, bytes: usize, advice: c_int) -> c_int, c"madvise", -1;
    mprotect(address: *mut c_void, bytes: usize, protection: c_int) -> c_int, c"mprotect", -1;
    read(fd: c_int, buffer: *mut c_void, bytes: usize) -> isize, c"read", -1;
    pread(fd: c_int, buffer: *mut c_void, bytes: usize, offset: i64) -> isize, c"pread", -1;
    readv(fd: c_int, vectors: *const libc::iovec, count: c_int) -> isize, c"readv", -1;
    fread(buffer: *mut c_void, size: usize, count: usize, stream: *mut libc::FILE) -> usize, c"fread", 0;
    fread_unlocked(buffer: *mut c_void, size: usize, count: usize, stream: *mut libc::FILE) -> usize, c"fread_unlocked", 0;
    close(fd: c_int) -> c_int, c"close", -1;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, c"close_range", -1;
    closefrom(first: c_int) -> (), c"closefrom", ();
    dup2(old: c_int, new: c_int) -> c_int, c"dup2", -1;
    dup3(old: c_int, new: c_int, flags: c_int) -> c_int, c"dup3", -1;
}

unsafe extern "C-unwind" {
    /// Cancels this thread if a cancellation is pending.
    pub(crate) fn pthread_testcancel();
    /// Ends the program because a buffer is too short.
    pub(crate) fn __chk_fail() -> !;
    pub(crate) fn flockfile(stream: *mut libc::FILE);
    pub(crate) fn funlockfile(stream: *mut libc::FILE);
}

/// Makes the `pread` system call, for threads of the shim.
///
/// # Safety
///
/// The contract of `pread`.
pub(crate) unsafe fn system_pread(
    fd: c_int,
    buffer: *mut u8,
    bytes: usize,
    offset: i64,
) -> Result<usize, i32> {
    // SAFETY: the caller meets the contract of `pread`.
    let read_bytes: c_long = unsafe { libc::syscall(libc::SYS_pread64, fd, buffer, bytes, offset) };
    usize::try_from(read_bytes).map_err(|_| crate::inside::errno())
}
