//! Initialises new named blocks: with zeros, or with data from the caller and zeros after them.
//!
//! A chunk can change its kind of blocks, so it is not known if a block's memory was used before.
//! Therefore memory to be zeroed is read first, and pages of zeros are not written: a write would
//! dirty the page and write it to the disk for nothing. (For 64 MiB that are new to the object,
//! plain zeroing wrote 67 MB to the disk, this way 4 MB.) Reading a page takes a page fault, so
//! callers that write the whole block should use [`Heap::allocate_named_with`], which skips it.

use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::heap::Heap;

const PAGE_BYTES: usize = 4096;

/// Writes a new block from front to back. The [`Write`] is full when the block is.
///
/// [`Heap::allocate_named_with`] passes it to its closure.
pub struct BlockWriter<'a> {
    block: &'a mut [MaybeUninit<u8>],
    written: usize,
}

impl BlockWriter<'_> {
    /// Returns the number of written bytes.
    pub fn written(&self) -> usize {
        self.written
    }

    /// Returns the unwritten rest of the block, for code that writes it directly. Call
    /// [`advance`](BlockWriter::advance) afterwards.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # evermap_guest::use_store(directory.path().join("store"))?;
    /// let mut heap = evermap_guest::Heap::open("nvheap")?;
    /// let squares = heap.allocate_named_with("squares", 256, |block| {
    ///     for (number, place) in block.unwritten().iter_mut().enumerate() {
    ///         place.write((number * number) as u8);
    ///     }
    ///     // SAFETY: the loop wrote all 256 bytes.
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

    /// Marks the next `bytes` bytes of [`unwritten`](BlockWriter::unwritten) as written.
    ///
    /// # Safety
    /// The caller has written these bytes.
    ///
    /// # Panics
    /// If fewer bytes are unwritten.
    pub unsafe fn advance(&mut self, bytes: usize) {
        assert!(
            bytes <= self.block.len() - self.written,
            "cannot advance beyond the end of the block"
        );
        self.written += bytes;
    }
}

impl Write for BlockWriter<'_> {
    /// Writes as many bytes as fit; returns 0 when the block is full.
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
    /// Allocates a block like [`allocate_named`](Heap::allocate_named). `fill` writes it from front
    /// to back, and the rest becomes zero. This is cheaper than writing a zeroed block, because its
    /// memory is not read first. The block gets its name after `fill` returns.
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
    /// Same errors as [`allocate_named`](Heap::allocate_named), and the errors of `fill`. After an
    /// error nothing has changed.
    pub fn allocate_named_with<E: From<Error>>(
        &mut self,
        name: &str,
        bytes: usize,
        fill: impl FnOnce(&mut BlockWriter<'_>) -> Result<(), E>,
    ) -> Result<&mut [u8], E> {
        self.check_new_name(name.as_bytes())?;
        let unnamed = Unnamed { block: self.allocate_block(bytes)?, heap: self };
        let mut block = NonNull::slice_from_raw_parts(unnamed.block, bytes);
        // SAFETY: the block is new and has `bytes` bytes, and no other reference to it exists.
        let places = unsafe { &mut *(block.as_ptr() as *mut [MaybeUninit<u8>]) };
        let mut writer = BlockWriter { block: places, written: 0 };
        fill(&mut writer)?;
        let written = writer.written;
        // SAFETY: these are the block's bytes after the written ones, and only this function uses
        // them.
        unsafe { zero(unnamed.block.add(written), bytes - written) };
        unnamed.keep().name_block(name.as_bytes(), block)?;
        // SAFETY: the whole block is initialised, and the exclusive borrow of the heap prevents
        // other accesses.
        Ok(unsafe { block.as_mut() })
    }
}

/// A block without a name yet. Dropping it frees the block, also after an error or a panic.
struct Unnamed<'a> {
    heap: &'a mut Heap,
    block: NonNull<u8>,
}

impl<'a> Unnamed<'a> {
    /// Keeps the block, and returns the heap.
    fn keep(self) -> &'a mut Heap {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: the field is read once, and `this` is not dropped.
        unsafe { std::ptr::read(&raw const this.heap) }
    }
}

impl Drop for Unnamed<'_> {
    fn drop(&mut self) {
        // SAFETY: only the function that is returning has used the block, and it is allocated.
        let _ = unsafe { self.heap.free(self.block) };
    }
}

/// Zeroes memory. Does not write to pages in which the range is already zero.
///
/// # Safety
/// `bytes` bytes at `from` are mapped writable, and nothing else uses them.
pub(crate) unsafe fn zero(from: NonNull<u8>, bytes: usize) {
    let mut at = 0;
    while at < bytes {
        // SAFETY: `at < bytes`, so the pointer stays in the range.
        let piece = unsafe { from.add(at) };
        let page_left = PAGE_BYTES - piece.as_ptr().addr() % PAGE_BYTES;
        let length = page_left.min(bytes - at);
        // SAFETY: the piece lies in the range, which the caller may write.
        unsafe {
            if !is_zero(piece, length) {
                piece.write_bytes(0, length);
            }
        }
        at += length;
    }
}

/// # Safety
/// Same requirements as [`zero`]. The memory may be uninitialised in Rust's sense: the file has
/// bytes there in any case, and volatile reads load them.
unsafe fn is_zero(from: NonNull<u8>, bytes: usize) -> bool {
    let head = from.as_ptr().align_offset(size_of::<u64>()).min(bytes);
    let words = (bytes - head) / size_of::<u64>();
    let tail = head + words * size_of::<u64>();
    // SAFETY: the caller may read `bytes` bytes at `from`, and words are aligned from `head` on.
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
    fn zero_changes_exactly_the_given_range() {
        for (offset, bytes) in
            [(0usize, 0usize), (0, 1), (3, 5), (5, 4096), (4093, 20), (1, 16383), (8, 8)]
        {
            for dirty in [0, bytes / 2, bytes.saturating_sub(1)] {
                let mut memory = vec![7u8; 6 * PAGE_BYTES];
                let end = offset + bytes;
                memory[offset..end].fill(0);
                if bytes > 0 {
                    memory[offset + dirty] = 9;
                }
                let from = NonNull::new(memory.as_mut_ptr()).unwrap();
                // SAFETY: the range is a part of the vector.
                unsafe { zero(from.add(offset), bytes) };
                let is_right = |(at, byte): (usize, &u8)| {
                    let expected = if (offset..end).contains(&at) { 0 } else { 7 };
                    *byte == expected
                };
                assert!(memory.iter().enumerate().all(is_right), "{offset} {bytes} {dirty}");
            }
        }
    }
}
