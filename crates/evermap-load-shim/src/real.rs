//! The functions that the shim stands in front of: the next ones of their names after it, which are the C library's, or somebody else's who stands in
//! front of that.
//!
//! All are looked up before `main`. Later, that could wait for the dynamic linker's lock, whose holder may wait for a lock of the caller's.
//! They are called by name, and not as system calls, for whoever else is preloaded, and because `read` and `close` are points at which threads
//! can be cancelled. A thread that is cancelled unwinds through its caller: so all that may wait is `C-unwind`.

use std::ffi::{CStr, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function by its name.
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
        // SAFETY: a lookup by a name that ends with 0.
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

        /// Looks all of them up.
        pub(crate) fn find_all() {
            $(next::$name.address();)*
        }

        $(
            #[allow(clippy::unused_unit, reason = "one of them gives nothing")]
            /// As the function of this name.
            ///
            /// # Safety
            ///
            /// As the function of this name.
            pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
                let address = next::$name.address();
                if address.is_null() {
                    crate::inside::set_errno(libc::ENOSYS);
                    return $failed;
                }
                // SAFETY: the C library's function of this name has this type; the caller answers for the rest.
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
    /// Lets this thread be cancelled, if somebody wants that.
    pub(crate) fn pthread_testcancel();
    /// Ends the program: a buffer is shorter than what is asked for.
    pub(crate) fn __chk_fail() -> !;
    pub(crate) fn flockfile(stream: *mut libc::FILE);
    pub(crate) fn funlockfile(stream: *mut libc::FILE);
}

/// `pread` as a system call: what a thread of the shim's own reads.
///
/// # Safety
///
/// As of `pread`.
pub(crate) unsafe fn system_pread(
    fd: c_int,
    buffer: *mut u8,
    bytes: usize,
    offset: i64,
) -> Result<usize, i32> {
    // SAFETY: the caller's promise.
    let came: c_long = unsafe { libc::syscall(libc::SYS_pread64, fd, buffer, bytes, offset) };
    usize::try_from(came).map_err(|_| crate::inside::errno())
}
