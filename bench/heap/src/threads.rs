//! Three common allocator benchmarks, reimplemented: fixed work on one or two threads, measured in
//! wall time.
//!
//! - **threadtest** (Hoard): each thread repeatedly allocates many blocks of 64 bytes and frees
//!   them all.
//! - **larson** (a server): each thread has 1,000 blocks of 16 to 512 bytes and repeatedly replaces
//!   a random one. After 100,000 replacements a new thread takes over the blocks; with two threads
//!   it takes those of the other one, and so frees blocks that it did not allocate.
//! - **producer-consumer**: one thread allocates blocks of 64 bytes, the other frees them; they
//!   pass through a bounded queue, 64 at a time.

use std::path::Path;
use std::sync::mpsc::sync_channel;

use crate::Scale;
use crate::foreign::Programs;
use crate::subjects::{Job, Subject, clock, with_allocator};
use crate::tree::{Allocate, Allocator};
use harness::Outcome;
use harness::children::print;
use harness::files::Folder;
use harness::goals::Goals;
use harness::random::Random;
use harness::samples::{Samples, figure, head, row};

const ROUNDS: usize = 7;
const GOAL: f64 = 1.1;
const SUBJECTS: [Subject; 3] = [Subject::Evermap, Subject::Glibc, Subject::Mimalloc];

/// Name of the work, number of blocks, and threads. The count is the total of all threads.
const WORKS: [(&str, u64, u64); 5] = [
    ("threadtest", 10_000_000, 1),
    ("threadtest", 10_000_000, 2),
    ("larson", 10_000_000, 1),
    ("larson", 10_000_000, 2),
    ("producer-consumer", 5_000_000, 2),
];
const BLOCK_BYTES: usize = 64;
/// Blocks that one thread of threadtest holds at a time.
const HELD: u64 = 100_000;
const SLOTS: usize = 1000;
const SIZES: (u64, u64) = (16, 512);
/// Replacements in the lifetime of one thread of larson.
const LIFE: u64 = 100_000;
/// Blocks that go through the queue together, and capacity of the queue in such groups.
const GROUP: usize = 64;
const QUEUE: usize = 64;

pub fn report(folder: &Folder, programs: &Programs, scale: Scale, goals: &mut Goals) -> Outcome {
    println!("\n### Threads\n");
    head(&[
        "",
        "threads",
        "blocks",
        "Evermap, ns a block",
        "glibc, ns",
        "mimalloc, ns",
        "/ glibc",
        "/ mimalloc",
    ]);
    for (index, (name, count, threads)) in WORKS.iter().enumerate() {
        let count = count / scale.divisor as u64;
        let mut all: [Samples; 3] = Default::default();
        for _ in 0..scale.rounds(ROUNDS) {
            for (subject, samples) in SUBJECTS.iter().zip(&mut all) {
                let place = folder.join("threads");
                std::fs::create_dir(&place)?;
                let numbers = [index as u64, count, *threads];
                if let Some(child) = subject.run(programs, "threads", &place, &numbers)? {
                    samples.push(child.figure("wall_us")? * 1e3 / count as f64);
                }
                std::fs::remove_dir_all(&place)?;
            }
        }
        let [ours, glibc, mimalloc] = &all;
        row(&[
            name.to_string(),
            threads.to_string(),
            count.to_string(),
            ours.to_string(),
            glibc.to_string(),
            mimalloc.to_string(),
            figure(ours.median() / glibc.median()),
            figure(ours.median() / mimalloc.median()),
        ]);
        let got = (ours.median(), format!("{ours} ns a block"));
        let what = format!("{name}, {threads} thread(s)");
        goals.ratio(&what, GOAL, got, (mimalloc.median(), "mimalloc, ns a block"));
    }
    Ok(())
}

/// Runs as the child: performs the work with this index.
pub fn child(subject: Subject, folder: &Path, work: usize, count: u64, threads: u64) -> Outcome {
    let (name, ..) = WORKS.get(work).ok_or("no such work")?;
    with_allocator(subject, folder, Work { name, count, threads })
}

struct Work {
    name: &'static str,
    count: u64,
    threads: u64,
}

impl Job for Work {
    fn run<A: Allocator>(self, allocator: &A) -> Outcome {
        let (outcome, wall_us) = clock(|| match self.name {
            "threadtest" => self.threadtest(allocator),
            "larson" => self.larson(allocator),
            _ => producer_consumer(allocator, self.count),
        });
        outcome?;
        print(&[("wall_us", wall_us)]);
        Ok(())
    }
}

/// Block that is passed between threads.
#[derive(Clone, Copy)]
struct Block(*mut u8);

// SAFETY: one thread has a block at a time, and allocators take blocks back from any thread.
unsafe impl Send for Block {}

/// Allocates a block and stores to it, as a program does.
fn make<T: Allocate>(thread: &mut T, bytes: usize, mark: u64) -> Block {
    let block = thread.allocate(bytes);
    assert!(!block.is_null(), "out of memory for a block");
    // SAFETY: the block is new, and has at least eight bytes with that alignment.
    unsafe { block.cast::<u64>().write(mark) };
    Block(block)
}

impl Work {
    fn threadtest<A: Allocator>(&self, allocator: &A) -> Outcome {
        let each = self.count / self.threads;
        let held = HELD.min(each);
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| {
                    let mut thread = allocator.thread();
                    let mut blocks = Vec::with_capacity(held as usize);
                    for _ in 0..each / held {
                        blocks.extend((0..held).map(|n| make(&mut thread, BLOCK_BYTES, n)));
                        for block in blocks.drain(..) {
                            // SAFETY: the block was allocated above, and only this thread has it.
                            unsafe { thread.free(block.0) };
                        }
                    }
                });
            }
        });
        Ok(())
    }

    fn larson<A: Allocator>(&self, allocator: &A) -> Outcome {
        let threads = self.threads as usize;
        let size = |random: &mut Random| (SIZES.0 + random.below(SIZES.1 - SIZES.0 + 1)) as usize;
        let mut random = Random::new(7);
        let mut thread = allocator.thread();
        let mut slots: Vec<Vec<Block>> = (0..threads)
            .map(|_| (0..SLOTS).map(|_| make(&mut thread, size(&mut random), 0)).collect())
            .collect();
        for generation in 0..self.count / (LIFE * self.threads) {
            std::thread::scope(|scope| {
                for (index, slots) in slots.iter_mut().enumerate() {
                    scope.spawn(move || {
                        let mut random = Random::new(generation * 2 + index as u64 + 8);
                        let mut thread = allocator.thread();
                        for number in 0..LIFE {
                            let slot = random.below(SLOTS as u64) as usize;
                            // SAFETY: the slot's block is allocated, and only this thread has it.
                            unsafe { thread.free(slots[slot].0) };
                            slots[slot] = make(&mut thread, size(&mut random), number);
                        }
                    });
                }
            });
            slots.rotate_left(1);
        }
        for block in slots.into_iter().flatten() {
            // SAFETY: the block is allocated, and no other thread is running.
            unsafe { thread.free(block.0) };
        }
        Ok(())
    }
}

fn producer_consumer<A: Allocator>(allocator: &A, count: u64) -> Outcome {
    let groups = count / GROUP as u64;
    let (sender, receiver) = sync_channel::<[Block; GROUP]>(QUEUE);
    let sum = std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut thread = allocator.thread();
            for group in 0..groups {
                let blocks = std::array::from_fn(|_| make(&mut thread, BLOCK_BYTES, group));
                if sender.send(blocks).is_err() {
                    return;
                }
            }
        });
        let mut thread = allocator.thread();
        let mut sum = 0;
        for block in receiver.iter().flatten() {
            // SAFETY: the producer allocated the block, stored eight bytes, and no longer uses it.
            unsafe {
                sum += block.0.cast::<u64>().read();
                thread.free(block.0);
            }
        }
        sum
    });
    match sum == (0..groups).sum::<u64>() * GROUP as u64 {
        true => Ok(()),
        false => Err("the consumer's sum differs from the producer's".into()),
    }
}
