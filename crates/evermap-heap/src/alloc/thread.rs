//! State of one thread: a bin per size class, and how a thread finds its part of a heap.
//!
//! One thread at a time uses a thread heap. The thread heap lives in its heap. Threads know it by
//! the heap's number, which is never reused, so a thread never uses its entry of a heap that was
//! dropped or rolled back. A thread that ends only sets `abandoned`: the next thread that comes
//! takes the whole thread heap over, or other threads take the slabs that they need.
//!
//! Invariants: the cells of a thread heap are used by its thread; while it is abandoned, by the
//! thread that holds the heap's lock; and by a thread that has the heap exclusively. The bits of a
//! bin's blocks are zero in its slab's `starts`, and the blocks count in the slab's `used`.

use std::cell::{Cell, RefCell};
use std::ptr::{NonNull, null};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use super::classes::CLASSES;
use super::remote_free::{FLAGS, Stack};
use super::slab::{GRANULE_SHIFT, NEVER, Plain, Slab, UNTOUCHED};
use std::sync::atomic::AtomicU64;

/// Blocks that a bin takes from its slab at a time. A bin fills two cache lines.
const TAKEN_MAX: usize = 46;

/// Source of a thread's blocks of one class: free blocks of one slab.
#[derive(Debug)]
#[repr(C, align(128))]
struct Bin {
    /// Index of the next block to hand out.
    next: Cell<u32>,
    /// Number of blocks that were taken, at most [`TAKEN_MAX`].
    end: Cell<u32>,
    /// Address of the slab's chunk.
    base: Cell<u64>,
    /// Current slab, or null; then the bin has no blocks.
    current: Cell<*const Slab>,
    /// Head of the list of slabs with a useful share of free blocks.
    first: Cell<*const Slab>,
    /// Index of the next word of `starts` to take from.
    from: Cell<u32>,
    /// Granules at which the blocks begin.
    taken: [Cell<u16>; TAKEN_MAX],
}
const _: () = assert!(size_of::<Bin>() == 128);

impl Default for Bin {
    fn default() -> Self {
        Bin {
            next: Cell::new(0),
            end: Cell::new(0),
            base: Cell::new(0),
            current: Cell::new(null()),
            first: Cell::new(null()),
            from: Cell::new(0),
            taken: [const { Cell::new(0) }; TAKEN_MAX],
        }
    }
}

impl Bin {
    /// Number of blocks that were taken and not handed out.
    fn left(&self) -> u32 {
        self.end.get() - self.next.get()
    }

    /// Releases the blocks and returns their number.
    fn give_up(&self) -> u32 {
        let left = self.left();
        self.next.set(0);
        self.end.set(0);
        left
    }

    /// Adds free blocks of a word to the end. Returns false if not all fit.
    fn add(&self, at: u32, mut free: u64) -> bool {
        let mut end = self.end.get() as usize;
        let taken = |free: u64| (at * 64 + free.trailing_zeros()) as u16;
        // Without branches for the first two: most words of a class of large blocks have none to
        // two free blocks, in no order that a processor predicts.
        for _ in 0..2 {
            let Some(entry) = self.taken.get(end) else { break };
            entry.set(taken(free));
            end += usize::from(free != 0);
            free &= free.wrapping_sub(1);
        }
        while free != 0 {
            let Some(entry) = self.taken.get(end) else { break };
            entry.set(taken(free));
            free &= free - 1;
            end += 1;
        }
        self.end.set(end as u32);
        free == 0
    }
}

/// One thread's part of a heap.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct ThreadHeap {
    bins: [Bin; CLASSES],
    /// Slabs used since their counts were written.
    touched: RefCell<Vec<*const Slab>>,
    /// The thread has ended.
    pub(super) abandoned: AtomicBool,
    /// Slabs with blocks that other threads freed.
    pub(super) pending: Stack<Slab>,
}

// SAFETY: one thread at a time uses the cells, see the invariants above; the next one synchronizes
// through the heap's lock, the flag `abandoned`, or exclusive access to the heap.
unsafe impl Send for ThreadHeap {}
// SAFETY: one thread at a time uses the cells, see the invariants above; everything else is atomic.
unsafe impl Sync for ThreadHeap {}

/// Action for a slab after blocks of it were freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterFree {
    Nothing,
    /// The slab is empty and in no bin: return its chunk.
    ReturnChunk,
}

impl Default for ThreadHeap {
    fn default() -> Self {
        ThreadHeap {
            bins: std::array::from_fn(|_| Bin::default()),
            touched: RefCell::default(),
            abandoned: AtomicBool::new(false),
            pending: Stack::default(),
        }
    }
}

/// Dereferences a slab pointer.
///
/// # Safety
/// Null, or a descriptor, which the heap keeps.
unsafe fn slab<'a>(pointer: *const Slab) -> Option<&'a Slab> {
    // SAFETY: the caller guarantees null or a descriptor that the heap keeps.
    unsafe { pointer.as_ref() }
}

impl ThreadHeap {
    /// Allocates a block of `class` from the bin, if it has one.
    #[inline(always)]
    pub(super) fn allocate(&self, class: usize) -> Option<NonNull<u8>> {
        let bin = &self.bins[class];
        let next = bin.next.get();
        if next == bin.end.get() {
            return None;
        }
        bin.next.set(next + 1);
        // SAFETY: `next` was below `end`, which is at most the number of entries.
        let granule = u32::from(unsafe { bin.taken.get_unchecked(next as usize) }.get());
        // SAFETY: a bin with blocks has a current slab, whose descriptor the heap keeps.
        unsafe { &*bin.current.get() }.set(granule);
        let address = bin.base.get() + (u64::from(granule) << GRANULE_SHIFT);
        // SAFETY: no bin takes blocks of a chunk at address zero.
        Some(unsafe { NonNull::new_unchecked(address as *mut u8) })
    }

    /// Allocates a block of `class` from the current slab, if it has one that the file is known to
    /// back.
    pub(super) fn allocate_from_slab(&self, class: usize) -> Option<NonNull<u8>> {
        let slab = self.current(class)?;
        let (at, free) = self.next_word(slab)?;
        if !slab.backs_word(at) {
            return None;
        }
        self.take(slab, at, free);
        self.allocate(class)
    }

    /// Returns the next word of the current slab with free blocks, and these blocks.
    ///
    /// Words that blocks were allocated from before come first, so that a program that frees and
    /// allocates few blocks stays in few cache lines. A search beyond them begins when less than a
    /// quarter of their blocks is free: each search then finds several blocks.
    pub(super) fn next_word(&self, slab: &Slab) -> Option<(u32, u64)> {
        let (from, window) = (self.bin_of(slab).from.get(), slab.window.get());
        if let found @ Some(_) = slab.free_word(from..window) {
            return found;
        }
        let (used, inside) = (slab.used(), slab.blocks_before(window));
        let few = used > inside - inside.div_ceil(4).min(inside);
        if !few && let found @ Some(_) = slab.free_word(0..window) {
            return found;
        }
        let beyond = slab.free_word(window..slab.words());
        beyond.or_else(|| {
            let useful = few && used <= slab.offered_used_max();
            useful.then(|| slab.free_word(0..window)).flatten()
        })
    }

    fn bin_of(&self, slab: &Slab) -> &Bin {
        &self.bins[slab.class.get() as usize % CLASSES]
    }

    /// Returns the slab that blocks of `class` come from.
    pub(super) fn current(&self, class: usize) -> Option<&Slab> {
        // SAFETY: bins hold descriptors, which live as long as the heap.
        unsafe { slab(self.bins[class].current.get()) }
    }

    fn is_current(&self, slab: &Slab) -> bool {
        std::ptr::eq(self.bin_of(slab).current.get(), slab)
    }

    /// Blocks of a slab that count as used but are still in the bin.
    pub(super) fn in_hand(&self, slab: &Slab) -> u32 {
        match self.is_current(slab) {
            true => self.bin_of(slab).left(),
            false => 0,
        }
    }

    /// Takes free blocks of the current slab into the bin, which must be empty: those of a word,
    /// and as many of the next words as fit, if the file is known to back them.
    pub(super) fn take(&self, slab: &Slab, at: u32, free: u64) {
        if slab.address.get() == 0 {
            return;
        }
        let bin = self.bin_of(slab);
        bin.give_up();
        bin.base.set(slab.address.get());
        let window = slab.window.get();
        let words = if at < window { window } else { slab.words() };
        let mut fit = bin.add(at, free);
        let mut from = at + u32::from(fit);
        while fit && from < words.min(slab.backed_words()) {
            fit = bin.add(from, slab.free_of(from));
            from += u32::from(fit);
        }
        bin.from.set(from);
        slab.window.set(window.max(from + u32::from(!fit)));
        slab.set_used(slab.used() + bin.left());
        self.touch(slab);
    }

    /// Records that a slab's blocks change.
    pub(super) fn touch(&self, slab: &Slab) {
        if slab.freer.get() & UNTOUCHED != 0 {
            slab.freer.fetch_and(!UNTOUCHED, Ordering::Relaxed);
            slab.touched.set(true);
            self.touched.borrow_mut().push(slab);
        }
    }

    /// Takes the list of slabs touched since the last call.
    pub(super) fn take_touched(&self) -> Vec<*const Slab> {
        self.touched.take()
    }

    /// Keeps a slab in the list of touched slabs.
    pub(super) fn keep_touched(&self, slab: &Slab) {
        self.touched.borrow_mut().push(slab);
    }

    /// Makes a slab of this heap current. The bin must have no current slab.
    pub(super) fn make_current(&self, slab: &Slab) {
        let bin = self.bin_of(slab);
        if slab.listed.get() {
            self.unlist(slab);
        }
        slab.set_notify(NEVER);
        if slab.used() == 0 {
            slab.window.set(0);
        }
        bin.from.set(0);
        bin.current.set(slab);
    }

    /// Stops allocating from the current slab of `class`. Puts the slab into the list if it has a
    /// useful share of free blocks.
    pub(super) fn leave(&self, class: usize) {
        let bin = &self.bins[class];
        // SAFETY: bins hold descriptors, which live as long as the heap.
        let Some(slab) = (unsafe { slab(bin.current.take_pointer()) }) else { return };
        slab.set_used(slab.used().wrapping_sub(bin.give_up()));
        self.file(slab);
    }

    /// Puts a slab of this heap that is neither current nor listed into the list if it belongs
    /// there.
    pub(super) fn file(&self, slab: &Slab) {
        let most = slab.offered_used_max();
        if slab.used() <= most {
            self.list(slab);
        } else {
            slab.set_notify(most);
        }
    }

    /// Returns the first slab in the list of `class`.
    pub(super) fn listed(&self, class: usize) -> Option<&Slab> {
        // SAFETY: bins hold descriptors, which live as long as the heap.
        unsafe { slab(self.bins[class].first.get()) }
    }

    fn list(&self, slab: &Slab) {
        let bin = self.bin_of(slab);
        let second = bin.first.replace(slab);
        slab.previous.set(null());
        slab.next.set(second);
        // SAFETY: bins and lists hold descriptors, which live as long as the heap.
        if let Some(second) = unsafe { self::slab(second) } {
            second.previous.set(slab);
        }
        slab.listed.set(true);
        slab.set_notify(0);
    }

    fn unlist(&self, slab: &Slab) {
        let (before, after) = (slab.previous.get(), slab.next.get());
        // SAFETY: bins and lists hold descriptors, which live as long as the heap.
        match unsafe { self::slab(before) } {
            Some(before) => before.next.set(after),
            None => self.bin_of(slab).first.set(after),
        }
        // SAFETY: bins and lists hold descriptors, which live as long as the heap.
        if let Some(after) = unsafe { self::slab(after) } {
            after.previous.set(before);
        }
        slab.listed.set(false);
    }

    /// Removes a slab from its bin, current or listed.
    pub(super) fn release(&self, slab: &Slab) {
        if self.is_current(slab) {
            let bin = self.bin_of(slab);
            bin.current.set(null());
            slab.set_used(slab.used().wrapping_sub(bin.give_up()));
        } else if slab.listed.get() {
            self.unlist(slab);
        }
        slab.set_notify(NEVER);
    }

    /// Moves a slab of this heap after blocks of it were freed. One empty slab per class is kept,
    /// so a program that frees and allocates at a slab's edge does not change the chunk map.
    pub(super) fn after_freeing(&self, slab: &Slab) -> AfterFree {
        if self.is_current(slab) {
            return AfterFree::Nothing;
        }
        if !slab.listed.get() {
            if slab.used() > slab.offered_used_max() {
                return AfterFree::Nothing;
            }
            self.list(slab);
        }
        let alone = slab.next.get().is_null() && slab.previous.get().is_null();
        if slab.used() > 0 || alone {
            return AfterFree::Nothing;
        }
        self.release(slab);
        AfterFree::ReturnChunk
    }
}

/// `Cell::take` for pointers.
trait TakePointer {
    fn take_pointer(&self) -> *const Slab;
}

impl TakePointer for Cell<*const Slab> {
    fn take_pointer(&self) -> *const Slab {
        self.replace(null())
    }
}

/// Number of heaps in a thread's cache behind the latest one, indexed by heap number modulo this.
const RECENT: usize = 4;

/// Cache entry: a heap's number and this thread's part of the heap.
struct Entry {
    heap: Cell<u64>,
    thread: Cell<NonNull<ThreadHeap>>,
}

impl Entry {
    const fn none() -> Entry {
        Entry { heap: Cell::new(0), thread: Cell::new(NonNull::dangling()) }
    }

    #[inline(always)]
    fn of(&self, heap: u64) -> Option<NonNull<ThreadHeap>> {
        (self.heap.get() == heap).then(|| self.thread.get())
    }

    fn set(&self, heap: u64, thread: NonNull<ThreadHeap>) {
        self.heap.set(heap);
        self.thread.set(thread);
    }
}

/// Thread-local data of the fast paths.
struct Near {
    /// The thread's number.
    number: Cell<u64>,
    latest: Entry,
    recent: [Entry; RECENT],
}

/// Next thread number, above the flags that occupy the low bits of [`Slab::freer`]. Numbers are
/// never reused, so a number that an ended thread left in a slab matches no other thread.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(FLAGS + 1);
/// Number of a thread that has none. No slab contains it.
pub(super) const NO_NUMBER: u64 = u64::MAX;

/// All thread heaps of this thread, by their heaps' numbers.
struct Mine(Vec<(u64, Weak<ThreadHeap>)>);

thread_local! {
    static NEAR: Near = const {
        Near {
            number: Cell::new(NO_NUMBER),
            latest: Entry::none(),
            recent: [const { Entry::none() }; RECENT],
        }
    };
    static MINE: RefCell<Mine> = const { RefCell::new(Mine(Vec::new())) };
}

impl Drop for Mine {
    fn drop(&mut self) {
        // Must happen before other threads may take the slabs.
        NEAR.with(|near| {
            near.number.set(NO_NUMBER);
            near.latest.heap.set(0);
            near.recent.iter().for_each(|entry| entry.heap.set(0));
        });
        for (_, thread) in self.0.drain(..) {
            if let Some(thread) = thread.upgrade() {
                thread.abandoned.store(true, Ordering::Release);
            }
        }
    }
}

/// Returns this thread's part of a heap if it is the last one that the thread used.
#[inline(always)]
pub(super) fn latest(heap: u64) -> Option<NonNull<ThreadHeap>> {
    NEAR.with(|near| near.latest.of(heap))
}

/// Returns this thread's part of a heap if the thread used it recently, and makes it the latest.
pub(super) fn recent(heap: u64) -> Option<NonNull<ThreadHeap>> {
    NEAR.with(|near| {
        let thread = near.recent[heap as usize % RECENT].of(heap)?;
        near.latest.set(heap, thread);
        Some(thread)
    })
}

/// Returns this thread's number, which is stored in the slabs it frees into on the fast path.
#[inline(always)]
pub(super) fn number() -> u64 {
    NEAR.with(|near| near.number.get())
}

/// Returns this thread's part of a heap; `join` creates it at the thread's first use. Returns
/// `None` while the thread ends.
pub(super) fn find_or_join(
    heap: u64,
    join: impl FnOnce() -> Arc<ThreadHeap>,
) -> Option<NonNull<ThreadHeap>> {
    let found = MINE.try_with(|mine| {
        let mine = &mut mine.borrow_mut().0;
        match mine.iter().find(|(of, _)| *of == heap) {
            Some((_, thread)) => thread.as_ptr(),
            None => {
                // Drop entries of heaps that are gone.
                mine.retain(|(_, thread)| thread.strong_count() > 0);
                let thread = join();
                mine.push((heap, Arc::downgrade(&thread)));
                Arc::as_ptr(&thread)
            }
        }
    });
    let thread = NonNull::new(found.ok()?.cast_mut())?;
    NEAR.with(|near| {
        if near.number.get() == NO_NUMBER {
            near.number.set(NEXT_NUMBER.fetch_add(FLAGS + 1, Ordering::Relaxed));
        }
        near.latest.set(heap, thread);
        near.recent[heap as usize % RECENT].set(heap, thread);
    });
    Some(thread)
}
