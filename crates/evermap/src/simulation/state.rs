//! Contents of the simulated object: a numbered state that can be told from a torn mix of states.
//!
//! The root holds the state's stamp, the number of blocks, and each block's address, size and hash.
//! A root of one commit with a block of another does not verify.

use std::ptr::NonNull;

use bytemuck::{Pod, Zeroable, bytes_of};
use xxhash_rust::xxh3::xxh3_64;

use super::model::Stamp;
use super::random::Random;
use crate::alloc::Heap;
use crate::error::Result;
use crate::format::RegionRecord;

/// Maximum number of blocks of a state.
const BLOCKS_MAX: usize = 32;

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    address: u64,
    bytes: u64,
    hash: u64,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Root {
    number: u64,
    nonce: u64,
    count: u64,
    blocks: [Block; BLOCKS_MAX],
    hash: u64,
}

/// Fits into the superblock's page.
pub(super) const ROOT_BYTES: usize = size_of::<Root>();
const _: () = assert!(ROOT_BYTES <= 1024);

/// A change of the blocks between two commits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Edit {
    /// Fills random lines of random blocks.
    Lines { blocks: usize, lines: usize },
    /// Fills the same line of the first block every time.
    SameLine,
    /// Fills random blocks completely.
    Whole { blocks: usize },
    /// Fills all blocks completely.
    Everything,
    /// Adds blocks.
    Gain { blocks: usize, bytes: usize },
    /// Adds blocks that are nearly all zeros.
    Sparse { blocks: usize, bytes: usize },
    /// Frees random blocks.
    Lose { blocks: usize },
}

/// # Safety
/// A `Root` is mapped at `address`, and no other thread writes to it during the call.
unsafe fn load(address: u64) -> Root {
    // SAFETY: the caller guarantees a mapped root; any bytes are a valid `Root`.
    unsafe { (address as *const Root).read() }
}

/// # Safety
/// `block` is mapped, and no thread writes to it while the slice lives.
unsafe fn bytes_at<'a>(block: &Block) -> &'a [u8] {
    // SAFETY: the caller guarantees a mapped block that no thread writes to.
    unsafe { std::slice::from_raw_parts(block.address as *const u8, block.bytes as usize) }
}

fn hash_of(root: &Root) -> u64 {
    xxh3_64(bytes_of(&Root { hash: 0, ..*root }))
}

/// Writes the first, empty state.
///
/// # Safety
/// Memory for a root is mapped writable at `root`.
pub(super) unsafe fn write_first(root: u64) {
    // SAFETY: the caller guarantees writable memory for a root.
    unsafe { (root as *mut Root).write(Root::zeroed()) };
}

/// Writes the stamp for the next commit and all hashes.
///
/// # Safety
/// A state is mapped writable at `root` with its blocks, and no other thread accesses it.
pub(super) unsafe fn stamp(root: u64, stamp: Stamp) {
    // SAFETY: the caller guarantees a mapped state.
    let mut state = unsafe { load(root) };
    state.number = stamp.number;
    state.nonce = stamp.nonce;
    for block in &mut state.blocks[..state.count as usize] {
        // SAFETY: the caller guarantees that the state's blocks are mapped.
        block.hash = xxh3_64(unsafe { bytes_at(block) });
    }
    state.hash = hash_of(&state);
    // SAFETY: the caller guarantees a writable root.
    unsafe { (root as *mut Root).write(state) };
}

/// Changes blocks. After an error the state is still valid.
///
/// # Safety
/// Same as [`stamp`], and `heap` belongs to the object.
pub(super) unsafe fn change(root: u64, heap: &Heap, edit: Edit, random: &mut Random) -> Result<()> {
    // SAFETY: the caller guarantees a mapped state.
    let mut state = unsafe { load(root) };
    let count = state.count as usize;
    let some = |random: &mut Random, wanted: usize| -> Vec<usize> {
        (0..wanted.min(count)).map(|_| random.below(count)).collect()
    };
    let done = match edit {
        Edit::Lines { blocks, lines } => {
            for index in some(random, blocks) {
                let block = state.blocks[index];
                for _ in 0..lines {
                    let line = random.below(block.bytes as usize / 64) as u64;
                    // SAFETY: the line lies in a block of the state.
                    unsafe { fill(block.address + line * 64, 64, random.next()) };
                }
            }
            Ok(())
        }
        Edit::SameLine if count > 0 => {
            // SAFETY: the line lies in a block of the state.
            unsafe { fill(state.blocks[0].address, 64, random.next()) };
            Ok(())
        }
        Edit::SameLine => Ok(()),
        Edit::Whole { blocks } => {
            for index in some(random, blocks) {
                let Block { address, bytes, .. } = state.blocks[index];
                // SAFETY: it is a block of the state.
                unsafe { fill(address, bytes as usize, random.next()) };
            }
            Ok(())
        }
        Edit::Everything => {
            for Block { address, bytes, .. } in &state.blocks[..count] {
                // SAFETY: it is a block of the state.
                unsafe { fill(*address, *bytes as usize, random.next()) };
            }
            Ok(())
        }
        Edit::Gain { blocks, bytes } => gain(&mut state, heap, blocks, bytes, bytes, random),
        Edit::Sparse { blocks, bytes } => gain(&mut state, heap, blocks, bytes, 64, random),
        Edit::Lose { blocks } => lose(&mut state, heap, blocks, random),
    };
    // SAFETY: the caller guarantees a writable root.
    unsafe { (root as *mut Root).write(state) };
    done
}

fn gain(
    state: &mut Root,
    heap: &Heap,
    blocks: usize,
    bytes: usize,
    filled: usize,
    random: &mut Random,
) -> Result<()> {
    for _ in 0..blocks.min(BLOCKS_MAX - state.count as usize) {
        let address = heap.allocate_zeroed(bytes, 64)?.as_ptr() as u64;
        // SAFETY: the block was just allocated.
        unsafe { fill(address, filled, random.next()) };
        state.blocks[state.count as usize] = Block { address, bytes: bytes as u64, hash: 0 };
        state.count += 1;
    }
    Ok(())
}

fn lose(state: &mut Root, heap: &Heap, blocks: usize, random: &mut Random) -> Result<()> {
    for _ in 0..blocks.min(state.count as usize) {
        let last = state.count as usize - 1;
        let index = random.below(last + 1);
        if let Some(block) = NonNull::new(state.blocks[index].address as *mut u8) {
            // SAFETY: nothing refers to the block.
            unsafe { heap.try_free(block)? };
        }
        state.blocks[index] = state.blocks[last];
        state.blocks[last] = Block::zeroed();
        state.count -= 1;
    }
    Ok(())
}

/// # Safety
/// `bytes` from `address` are mapped writable, and no other thread accesses them.
unsafe fn fill(address: u64, bytes: usize, seed: u64) {
    let mut random = Random::new(seed);
    for at in (0..bytes).step_by(8) {
        // SAFETY: the caller guarantees writable memory; blocks are aligned to 64 and a multiple of
        // it long.
        unsafe { ((address + at as u64) as *mut u64).write(random.next()) };
    }
}

/// Verifies that every byte of the state belongs to one commit. `bytes_of_object` returns the bytes
/// at an address if they are inside the object. `allocated` is the allocator's block count.
pub(super) fn verify<'a>(
    root: u64,
    allocated: Option<u64>,
    bytes_of_object: impl Fn(u64, usize) -> Option<&'a [u8]>,
) -> Result<Stamp, String> {
    let bytes = bytes_of_object(root, ROOT_BYTES).ok_or("the root lies outside the object")?;
    let state: Root = bytemuck::pod_read_unaligned(bytes);
    let stamp = Stamp { number: state.number, nonce: state.nonce };
    if hash_of(&state) != state.hash {
        return Err(format!("the root of {stamp} mixes states"));
    }
    if let Some(allocated) = allocated.filter(|allocated| *allocated != state.count) {
        return Err(format!("{allocated} blocks are allocated, {stamp} has {}", state.count));
    }
    for (index, block) in state.blocks[..state.count as usize].iter().enumerate() {
        let Some(bytes) = bytes_of_object(block.address, block.bytes as usize) else {
            return Err(format!("block {index} of {stamp} lies outside the object"));
        };
        if xxh3_64(bytes) != block.hash {
            return Err(format!("block {index} of {stamp} belongs to another state"));
        }
    }
    Ok(stamp)
}

/// Finds the region that contains `length` bytes at an address, and the offset in it.
pub(super) fn find(
    regions: &[RegionRecord],
    address: u64,
    length: usize,
) -> Option<(usize, usize)> {
    let index = regions.iter().position(|region| {
        address >= region.base
            && address.checked_add(length as u64).is_some_and(|e| e <= region.base + region.length)
    })?;
    Some((index, (address - regions[index].base) as usize))
}

/// Returns a function that reads bytes of mapped regions.
///
/// # Safety
/// `regions` are mapped as described while the slices live, and no thread writes to them.
pub(super) unsafe fn mapped<'a>(
    regions: &[RegionRecord],
) -> impl Fn(u64, usize) -> Option<&'a [u8]> {
    |address, length| {
        find(regions, address, length)?;
        // SAFETY: the caller guarantees mapped regions; the range is inside one of them.
        Some(unsafe { std::slice::from_raw_parts(address as *const u8, length) })
    }
}
