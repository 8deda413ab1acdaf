//! The functions of `include/nvheap.h`, for guests in C: one heap per application. The heap is the
//! object "nvheap", its root is a table of names (`blocks`), and one lock serialises the calls.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use evermap_heap::nvheap::ALIGNMENT;

use crate::error::{Code, Error, Result};
use crate::heap::Heap;
use crate::snapshot::Snapshot;

const OBJECT: &str = "nvheap";
/// Levels, as in the header.
const NV_SNAPSHOT: c_int = 1;
const NV_WRITE: c_int = 3;

enum Open {
    Heap(Box<Heap>),
    /// The snapshot, and the reason why it cannot be written.
    Snapshot(Snapshot, String),
}

/// The open heap.
static HEAP: Mutex<Option<Open>> = Mutex::new(None);

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

fn lock() -> MutexGuard<'static, Option<Open>> {
    HEAP.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_heap() -> Result<Open> {
    Heap::open(OBJECT).map(|heap| Open::Heap(Box::new(heap)))
}

fn open_snapshot(why: impl Into<String>) -> Result<Open> {
    Snapshot::open(OBJECT).map(|snapshot| Open::Snapshot(snapshot, why.into()))
}

/// Opens the heap for writing. Opens its last commit if another program is writing it or this
/// application may only read it.
fn open() -> Result<Open> {
    let error = match open_heap() {
        Err(error) => error,
        opened => return opened,
    };
    let why = match error.code() {
        Code::Busy => "another guest or program was writing the heap when this one opened it; call nvprotect(NV_WRITE) later (or as the first call, to fail with EBUSY instead of reading)".to_string(),
        Code::Denied => error.message().to_string(),
        _ => return Err(error),
    };
    // The first error is more useful than a missing commit.
    open_snapshot(why).map_err(|_| error)
}

fn with_open<T>(call: impl FnOnce(&mut Open) -> Result<T>) -> Result<T> {
    let mut heap = lock();
    let open = match &mut *heap {
        Some(open) => open,
        none => none.insert(open()?),
    };
    call(open)
}

fn with_heap<T>(call: impl FnOnce(&mut Heap) -> Result<T>) -> Result<T> {
    with_open(|open| match open {
        Open::Heap(heap) => call(heap),
        Open::Snapshot(_, why) => {
            let why = format!("the heap is open as a snapshot of its last commit, because {why}");
            Err(Error::new(Code::ReadOnly, OBJECT, why))
        }
    })
}

/// Sets `errno` and the text of `nverror` if a call failed.
fn report<T>(result: Result<T>) -> Option<T> {
    let error = match result {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    let text = error.to_string().replace('\0', "?");
    MESSAGE.with(|message| message.replace(CString::new(text).unwrap_or_default()));
    set_errno(errno_of(error.code()));
    None
}

fn errno_of(code: Code) -> c_int {
    match code {
        Code::NotFound => libc::ENOENT,
        Code::Denied => libc::EACCES,
        Code::Busy => libc::EBUSY,
        Code::Quota => libc::EDQUOT,
        Code::OutOfAddresses | Code::BadAllocation => libc::ENOMEM,
        Code::DiskFull => libc::ENOSPC,
        Code::Damaged => libc::EBADMSG,
        Code::MemoryLayout => libc::ENOEXEC,
        Code::ReadOnly => libc::EROFS,
        Code::Io | Code::DurabilityUnknown => libc::EIO,
        Code::Dead => libc::EFAULT,
        Code::OtherType | Code::OtherKind => libc::EPROTOTYPE,
        Code::AlreadyExists => libc::EEXIST,
        _ => libc::EINVAL,
    }
}

fn set_errno(number: c_int) {
    // `errno` is a thread-local variable, for which Rust has no stable declaration. Without threads
    // it is an ordinary variable.
    #[cfg(not(target_feature = "atomics"))]
    {
        unsafe extern "C" {
            static mut errno: c_int;
        }
        // SAFETY: `errno` belongs to the C library, and there is only one thread.
        unsafe { errno = number };
    }
    #[cfg(target_feature = "atomics")]
    let _ = number;
}

/// # Safety
/// `name` is null or a C string.
unsafe fn name_of<'a>(name: *const c_char) -> Result<&'a [u8]> {
    if name.is_null() {
        return Err(Error::new(
            Code::InvalidName,
            OBJECT,
            "the name is NULL; pass a name for the block",
        ));
    }
    // SAFETY: the caller passes a C string, and it is not null here.
    Ok(unsafe { CStr::from_ptr(name) }.to_bytes())
}

fn no_block(name: &[u8]) -> Error {
    let why = format!("it has no block `{}`", String::from_utf8_lossy(name));
    Error::new(Code::NotFound, OBJECT, why)
}

evermap_heap::__nvheap_functions! {
    nvmalloc = malloc, nvread = read, nvfree = free, nvcommit = commit
}

/// # Safety
/// `name` is null or a C string.
unsafe fn malloc(name: *const c_char, size: usize) -> *mut c_void {
    let block = with_heap(|heap| {
        if name.is_null() {
            return heap.allocate(size, ALIGNMENT);
        }
        // SAFETY: the caller passes null or a C string.
        let name = unsafe { name_of(name) }?;
        heap.allocate_named_raw(name, size).map(NonNull::cast)
    });
    report(block).map_or(null_mut(), |block| block.as_ptr().cast())
}

/// # Safety
/// `name` is a C string, and `size` is null or writable.
unsafe fn read(name: *const c_char, size: *mut usize) -> *mut c_void {
    let block = with_open(|open| {
        // SAFETY: the caller passes null or a C string.
        let name = unsafe { name_of(name) }?;
        let found = match open {
            Open::Heap(heap) => heap.block_raw(name),
            Open::Snapshot(snapshot, _) => snapshot.block_raw(name),
        };
        found?.ok_or_else(|| no_block(name))
    });
    let Some(block) = report(block) else { return null_mut() };
    // SAFETY: the caller passes null or a writable `size`.
    if let Some(size) = unsafe { size.as_mut() } {
        *size = block.len();
    }
    block.as_ptr().cast()
}

/// # Safety
/// `name` is a C string, and the caller does not use the block again.
unsafe fn free(name: *const c_char) -> c_int {
    let freed = with_heap(|heap| {
        // SAFETY: the caller passes null or a C string.
        let name = unsafe { name_of(name) }?;
        // SAFETY: the caller no longer uses the block.
        let found = unsafe { heap.free_named_raw(name) }?;
        if found { Ok(()) } else { Err(no_block(name)) }
    });
    status(freed)
}

/// # Safety
/// The caller does not use the block again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrelease(block: *mut c_void) -> c_int {
    let Some(block) = NonNull::new(block.cast()) else { return 0 };
    // SAFETY: the caller no longer uses the block.
    status(with_heap(|heap| unsafe { heap.free(block) }))
}

fn commit() -> c_int {
    status(with_heap(|heap| heap.commit().map(drop)))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvprotect(level: c_int) -> c_int {
    status(protect(level))
}

fn protect(level: c_int) -> Result<()> {
    let mut heap = lock();
    match (&*heap, level) {
        (Some(Open::Snapshot(..)), NV_SNAPSHOT) | (Some(Open::Heap(_)), NV_WRITE) => return Ok(()),
        (_, NV_SNAPSHOT | NV_WRITE) => {}
        _ => {
            let why = format!("{level} is not a level; use NV_SNAPSHOT or NV_WRITE");
            return Err(Error::new(Code::InvalidArgument, OBJECT, why));
        }
    }
    // A program opens the object only once, so close it first.
    let before = heap.take();
    let was_open = before.is_some();
    match before {
        Some(Open::Heap(open)) => open.close()?,
        Some(Open::Snapshot(open, _)) => open.close()?,
        None => {}
    }
    let opened = match level {
        NV_SNAPSHOT => {
            open_snapshot("nvprotect(NV_SNAPSHOT) asked for it; call nvprotect(NV_WRITE)")
        }
        _ => open_heap(),
    };
    match opened {
        Ok(open) => {
            *heap = Some(open);
            Ok(())
        }
        Err(error) => {
            // Open the heap again, so the program's pointers to blocks stay valid.
            if was_open {
                *heap = open().ok();
            }
            Err(error)
        }
    }
}

/// Returns the message of the last error in this thread, valid until the next error.
#[unsafe(no_mangle)]
pub extern "C" fn nverror() -> *const c_char {
    MESSAGE.with(|message| message.borrow().as_ptr())
}

fn status(result: Result<()>) -> c_int {
    if report(result).is_some() { 0 } else { -1 }
}
