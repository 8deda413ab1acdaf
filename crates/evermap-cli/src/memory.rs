//! Ends the command with a message and exit code 7 when an allocation fails, instead of `SIGABRT`.
//!
//! Rust aborts a process when a container cannot grow. This allocator exits first. Stores are left
//! as after a kill, with every acknowledged commit. Code that handles failed allocations itself
//! runs in [`fallible`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;
use std::process::ExitCode;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::{Resource, getrlimit};

/// Exit code for missing memory.
const NO_MEMORY: i32 = 7;
/// A failed allocation below this size always ends the command: the parsers only use `try_reserve`
/// for large ones.
const SMALL_BYTES: usize = 1024 * 1024;

/// Stack size that suffices for everything but deep recursion.
const STACK_BYTES: usize = 512 * 1024;

thread_local! {
    static FALLIBLE: Cell<bool> = const { Cell::new(false) };
}

/// Runs code that handles failures of large allocations itself (`try_reserve`).
pub fn fallible<T>(run: impl FnOnce() -> T) -> T {
    let before = FALLIBLE.replace(true);
    let result = run();
    FALLIBLE.set(before);
    result
}

/// Ends the command if a limit on addresses (`ulimit -v`) leaves no room for the stack. Otherwise
/// the kernel would kill it with `SIGSEGV`. Costs two more system calls under such a limit.
pub fn ensure_stack_space() {
    if getrlimit(Resource::As).current.is_none() {
        return;
    }
    // SAFETY: the mapping is new, is never accessed, and is removed at once.
    unsafe {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        match mmap_anonymous(std::ptr::null_mut(), STACK_BYTES, ProtFlags::empty(), flags) {
            Ok(room) => drop(munmap(room, STACK_BYTES)),
            Err(_) => exit_without_memory(STACK_BYTES),
        }
    }
}

/// Stack of a thread that runs the command instead of the first one.
const THREAD_STACK_BYTES: usize = 8 << 20;

/// Runs the command. If a limit (`ulimit -s`) leaves the first thread less stack than the command
/// takes, another thread with a larger stack runs it. Costs one system call.
pub fn with_enough_stack(command: fn() -> ExitCode) -> ExitCode {
    match getrlimit(Resource::Stack).current {
        Some(bytes) if bytes < 2 * STACK_BYTES as u64 => {}
        _ => return command(),
    }
    let thread = std::thread::Builder::new().stack_size(THREAD_STACK_BYTES).spawn(command);
    match thread {
        Ok(thread) => thread.join().unwrap_or(ExitCode::FAILURE),
        Err(_) => exit_without_memory(THREAD_STACK_BYTES),
    }
}

/// The system's allocator, which ends the command when it has no memory.
pub struct ExitOnFailure;

/// Returns `block`. Ends the command if it is null, unless a [`fallible`] caller handles that.
fn or_exit(block: *mut u8, bytes: usize) -> *mut u8 {
    if block.is_null() && (bytes < SMALL_BYTES || !FALLIBLE.try_with(Cell::get).unwrap_or(false)) {
        exit_without_memory(bytes);
    }
    block
}

/// Prints the message and exits. Does not allocate.
#[cold]
fn exit_without_memory(bytes: usize) -> ! {
    let mut message = [0_u8; 160];
    let mut rest = &mut message[..];
    let _ = writeln!(
        rest,
        "evermap: no memory is left for {bytes} bytes; raise the process's limit (`ulimit -v`, \
         `ulimit -d`), or free memory"
    );
    let left = rest.len();
    let text = &message[..message.len() - left];
    let _ = rustix::io::write(rustix::stdio::stderr(), text);
    // SAFETY: `_exit` runs no destructors and takes no locks, so it can be called from an
    // allocator.
    unsafe { libc::_exit(NO_MEMORY) }
}

// SAFETY: every method passes its arguments to the system's allocator, and returns its result
// unchanged.
unsafe impl GlobalAlloc for ExitOnFailure {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees a layout of non-zero size, as `GlobalAlloc` requires.
        or_exit(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees a layout of non-zero size, as `GlobalAlloc` requires.
        or_exit(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that `block` was allocated here with `layout`, and that
        // `bytes` is a valid non-zero size. All blocks come from the system's allocator.
        or_exit(unsafe { System.realloc(block, layout, bytes) }, bytes)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees that `block` was allocated here with `layout`. All blocks
        // come from the system's allocator.
        unsafe { System.dealloc(block, layout) }
    }
}
