//! Tests of the typed layer against a heap that counts its blocks and can be told to fail.

// Their type names make a module of a gigabyte on WebAssembly.
#[cfg(not(target_family = "wasm"))]
mod deep_types;
// These texts apply to 64-bit machines.
#[cfg(not(target_family = "wasm"))]
mod describe;
mod difference;
mod failure;
mod hash;
mod names;
mod pbox;
mod pmap;
mod pstring;
mod pvec;
#[cfg(feature = "serde")]
mod serde;
mod structs;
mod widths;

use super::{Build, Mut, Persist, Scratch};
use crate::HeapError;
use crate::alloc::Heap;

/// Number of repetitions: `count`, or a hundredth of it under Miri, which is a thousand times
/// slower.
pub(in crate::persist) fn times(count: usize) -> usize {
    if cfg!(miri) { count / 100 } else { count }
}

/// Creates an object in its own heap.
pub(in crate::persist) fn object<T: Build<S>, S>(source: S) -> Scratch<T> {
    Scratch::in_heap(Heap::anonymous().unwrap(), source).unwrap()
}

/// Ends an object and asserts that every block was freed (the heap itself asserts that none was
/// freed twice).
pub(in crate::persist) fn close<T: Persist>(object: Scratch<T>) {
    assert_eq!(object.close().live_blocks(), 0, "blocks were leaked");
}

/// Runs `work` on fresh objects and fails the first allocation, then the second, and so on until
/// `work` succeeds. After each run, `check` gets the root and whether `work` succeeded, and the
/// object must end without leaks. Returns the number of allocations of `work`.
pub(in crate::persist) fn failing_at_each_allocation<T: Persist>(
    make: impl Fn() -> Scratch<T>,
    work: impl Fn(Mut<'_, T>) -> Result<(), HeapError>,
    check: impl Fn(&T, bool),
) -> usize {
    for allowed in 0..10_000 {
        let mut object = make();
        object.heap().fail_after(allowed);
        let succeeded = work(object.root_mut()).is_ok();
        check(object.root(), succeeded);
        close(object);
        if succeeded {
            return allowed;
        }
    }
    panic!("never succeeded");
}
