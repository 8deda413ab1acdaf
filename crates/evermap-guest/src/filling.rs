//! What a new named block holds: zeros, or what its maker writes, and zeros behind that.
//!
//! Nobody knows of a block's memory whether it was ever used: a chunk goes from one kind of block to
//! another. So what is to be zero is looked at first, and a page that holds zeros is not stored to: it
//! would be written to the disk, or become the process's own, for nothing. (64 MiB that are new to the
//! object: 67 MB written to the disk by plain zeroing, 4 MB so.) Who writes a block anyway is better off
//! without that look, which takes a page fault of its own: [`Heap::allocate_named_with`].

use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::heap::Heap;

const PAGE_BYTES: usize = 4096;

/// A new block that is being written, front to back: a [`Write`] that is full when the block is.
///
/// Given by [`Heap::allocate_named_with`].
pub struct BlockWriter<'a> {
    block: &'a mut [MaybeUninit<u8>],
    written: usize,
}

impl BlockWriter<'_> {
    /// Bytes that were written.
    pub fn written(&self) -> usize {
        self.written
    }

    /// What was not, for code that writes it by itself; [`advance`](BlockWriter::advance) says how
    /// much it wrote.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # evermap_guest::use_store(directory.path().join("store"))?;
    /// let mut heap = evermap_guest::Heap::open("nvheap")?;
    /// let squares = heap.allocate_named_with("squares", 256, |block| {
    ///     for (number, place) in block.unwritten().iter_mut().enumerate() {
    ///         place.write((number * number) as u8);
    ///     }
    ///     // SAFETY: the loop wrote all of them.
    ///     unsafe { block.advance(256) };
    ///     evermap_guest::Result::<()>::Ok(())
    /// })?;
    /// assert_eq!(squares[..5], [0, 1, 4, 9, 16]);
    /// # heap.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unwritten(&mut self) -> &mut [MaybeUninit<u8>] {
        &mut self.block[self.written..]
    }

    /// Says that the next `bytes` of [`unwritten`](BlockWriter::unwritten) were written.
    ///
    /// # Safety
    /// They were.
    ///
    /// # Panics
    /// When there are not as many.
    pub unsafe fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.block.len() - self.written, "a block is written to its end only");
        self.written += bytes;
    }
}

impl Write for BlockWriter<'_> {
    /// Writes as much as there is room for: 0 when the block is full.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.unwritten();
        let count = bytes.len().min(room.len());
        for (place, byte) in room.iter_mut().zip(bytes) {
            place.write(*byte);
        }
        self.written += count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for BlockWriter<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (written, bytes) = (self.written, self.block.len());
        formatter
            .debug_struct("BlockWriter")
            .field("written", &written)
            .field("bytes", &bytes)
            .finish()
    }
}

impl Heap {
    /// Allocates a block as [`allocate_named`](Heap::allocate_named) does, and has `fill` write it,
    /// front to back; what it leaves is zero. Cheaper than writing a block of zeros: its memory is not
    /// looked at first. The block has its name when `fill` is done.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # evermap_guest::use_store(directory.path().join("store"))?;
    /// use std::io::Write;
    ///
    /// let mut heap = evermap_guest::Heap::open("nvheap")?;
    /// heap.allocate_named_with("greeting", 8, |block| block.write_all(b"hello"))?;
    /// heap.commit()?;
    /// assert_eq!(heap.block("greeting")?, Some(&b"hello\0\0\0"[..]));
    /// # heap.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`allocate_named`](Heap::allocate_named), and what `fill` returns. Nothing has changed then.
    pub fn allocate_named_with<E: From<Error>>(
        &mut self,
        name: &str,
        bytes: usize,
        fill: impl FnOnce(&mut BlockWriter<'_>) -> Result<(), E>,
    ) -> Result<&mut [u8], E> {
        self.check_new_name(name.as_bytes())?;
        let unnamed = Unnamed { block: self.allocate_block(bytes)?, heap: self };
        let mut block = NonNull::slice_from_raw_parts(unnamed.block, bytes);
        // SAFETY: the block is new, of so many bytes, and nobody else has it.
        let places = unsafe { &mut *(block.as_ptr() as *mut [MaybeUninit<u8>]) };
        let mut writer = BlockWriter { block: places, written: 0 };
        fill(&mut writer)?;
        let written = writer.written;
        // SAFETY: the block's own bytes behind what was written.
        unsafe { zero(unnamed.block.add(written), bytes - written) };
        unnamed.keep().name_block(name.as_bytes(), block)?;
        // SAFETY: all of it was written; as long as the heap is borrowed exclusively nobody else
        // reaches it.
        Ok(unsafe { block.as_mut() })
    }
}

/// A block that has no name yet. Dropping it frees it, whatever happened meanwhile.
struct Unnamed<'a> {
    heap: &'a mut Heap,
    block: NonNull<u8>,
}

impl<'a> Unnamed<'a> {
    /// The heap, for which the block stays.
    fn keep(self) -> &'a mut Heap {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: read once, and `this` is not dropped.
        unsafe { std::ptr::read(&raw const this.heap) }
    }
}

impl Drop for Unnamed<'_> {
    fn drop(&mut self) {
        // SAFETY: nobody has the block but who is being left. An allocated block is freed.
        let _ = unsafe { self.heap.free(self.block) };
    }
}

/// Makes memory zero, and stores nothing to pages in which it is.
///
/// # Safety
/// So many bytes are mapped writable from there, and nobody else has them.
pub(crate) unsafe fn zero(from: NonNull<u8>, bytes: usize) {
    let mut at = 0;
    while at < bytes {
        // SAFETY: inside of the memory.
        let piece = unsafe { from.add(at) };
        let page_left = PAGE_BYTES - piece.as_ptr().addr() % PAGE_BYTES;
        let length = page_left.min(bytes - at);
        // SAFETY: as above.
        unsafe {
            if !is_zero(piece, length) {
                piece.write_bytes(0, length);
            }
        }
        at += length;
    }
}

/// # Safety
/// As [`zero`]. What is there may be anything, also what Rust calls uninitialised: the file has bytes
/// there in any case, and they are loaded as the machine has them.
unsafe fn is_zero(from: NonNull<u8>, bytes: usize) -> bool {
    let head = from.as_ptr().align_offset(size_of::<u64>()).min(bytes);
    let words = (bytes - head) / size_of::<u64>();
    let tail = head + words * size_of::<u64>();
    // SAFETY: the caller's promise; words are aligned from `head` on.
    unsafe {
        let byte = |at: usize| from.add(at).as_ptr().read_volatile();
        let first = from.add(head).as_ptr().cast::<u64>();
        (0..head).chain(tail..bytes).all(|at| byte(at) == 0)
            && (0..words).all(|at| first.add(at).read_volatile() == 0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn any_part_of_memory_becomes_zero_and_nothing_beside_it() {
        for (offset, bytes) in
            [(0usize, 0usize), (0, 1), (3, 5), (5, 4096), (4093, 20), (1, 16383), (8, 8)]
        {
            for dirty in [0, bytes / 2, bytes.saturating_sub(1)] {
                let mut memory = vec![7u8; 6 * PAGE_BYTES];
                let behind = offset + bytes;
                memory[offset..behind].fill(0);
                if bytes > 0 {
                    memory[offset + dirty] = 9;
                }
                let from = NonNull::new(memory.as_mut_ptr()).unwrap();
                // SAFETY: a part of the vector.
                unsafe { zero(from.add(offset), bytes) };
                let is_right = |(at, byte): (usize, &u8)| {
                    let expected = if (offset..behind).contains(&at) { 0 } else { 7 };
                    *byte == expected
                };
                assert!(memory.iter().enumerate().all(is_right), "{offset} {bytes} {dirty}");
            }
        }
    }
}
