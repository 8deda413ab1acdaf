//! An allocation that fails ends the command with a message and exit code 7, and not with `SIGABRT`.
//!
//! Rust ends a process by a signal when a container cannot grow. The allocator here ends the command
//! first. Stores are left as after a kill, with every acknowledged commit. Code that handles a failed allocation itself
//! runs in [`fallible`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;
use std::process::ExitCode;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::{Resource, getrlimit};

/// Exit code for what cannot be done for lack of room.
const NO_ROOM: i32 = 7;
/// Smaller allocations are made without a question while a document is parsed, so their failure always
/// ends the command.
const SMALL_BYTES: usize = 1024 * 1024;

/// More stack than the command takes for anything but deep recursion.
const STACK_BYTES: usize = 512 * 1024;

thread_local! {
    static FALLIBLE: Cell<bool> = const { Cell::new(false) };
}

/// Runs code that handles failures of large allocations (`try_reserve`).
pub fn fallible<T>(run: impl FnOnce() -> T) -> T {
    let before = FALLIBLE.replace(true);
    let result = run();
    FALLIBLE.set(before);
    result
}

/// Ends the command if a limit of addresses (`ulimit -v`) leaves no room for its stack, which the
/// kernel would end by `SIGSEGV`. Two more system calls under such a limit.
pub fn need_room_for_stack() {
    if getrlimit(Resource::As).current.is_none() {
        return;
    }
    // SAFETY: a new mapping, which is never used and removed at once.
    unsafe {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        match mmap_anonymous(std::ptr::null_mut(), STACK_BYTES, ProtFlags::empty(), flags) {
            Ok(room) => drop(munmap(room, STACK_BYTES)),
            Err(_) => end(STACK_BYTES),
        }
    }
}

/// Stack of a thread that runs the command instead of the first one.
const THREAD_STACK_BYTES: usize = 8 << 20;

/// Runs the command. If a limit (`ulimit -s`) leaves the first thread less stack than the command
/// takes, another thread runs it, whose stack is a mapping of its own. One system call.
pub fn with_enough_stack(command: fn() -> ExitCode) -> ExitCode {
    match getrlimit(Resource::Stack).current {
        Some(bytes) if bytes < 2 * STACK_BYTES as u64 => {}
        _ => return command(),
    }
    let thread = std::thread::Builder::new().stack_size(THREAD_STACK_BYTES).spawn(command);
    match thread {
        Ok(thread) => thread.join().unwrap_or(ExitCode::FAILURE),
        Err(_) => end(THREAD_STACK_BYTES),
    }
}

/// The system's allocator, which ends the command when it has no memory.
pub struct OrEnd;

fn or_end(block: *mut u8, bytes: usize) -> *mut u8 {
    if block.is_null() && (bytes < SMALL_BYTES || !FALLIBLE.try_with(Cell::get).unwrap_or(false)) {
        end(bytes);
    }
    block
}

/// Allocates nothing.
#[cold]
fn end(bytes: usize) -> ! {
    let mut message = [0_u8; 160];
    let mut rest = &mut message[..];
    let _ = writeln!(
        rest,
        "evermap: no memory is left for {bytes} bytes; raise the process's limit (`ulimit -v`, \
         `ulimit -d`), or free memory"
    );
    let left = rest.len();
    let said = &message[..message.len() - left];
    let _ = rustix::io::write(rustix::stdio::stderr(), said);
    // SAFETY: `_exit` runs no destructors and takes no locks, so it can be called from an allocator.
    unsafe { libc::_exit(NO_ROOM) }
}

// SAFETY: each call is passed on to the system's allocator with the caller's own arguments, and its
// result is returned unchanged.
unsafe impl GlobalAlloc for OrEnd {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as of this function.
        or_end(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as of this function.
        or_end(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as of this function.
        or_end(unsafe { System.realloc(block, layout, bytes) }, bytes)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as of this function.
        unsafe { System.dealloc(block, layout) }
    }
}
