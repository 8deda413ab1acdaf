//! Copies repeatedly to the same names, and announces the current promises after each copy.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evermap_transfer::engines::Tuning;
use evermap_transfer::{Copy, Durability, Error};

use super::{
    FILE, LONG, LONG_EVERY, Method, Promise, TREE_EVERY, file_source, journal, long_source,
    method_of, tree_source, tree_target,
};
use crate::random::Random;

/// Number of interruptions of one copy.
const INTERRUPTIONS: u64 = 2;
/// Bytes per step: small enough to interrupt a copy of a megabyte in the middle.
const STEP_BYTES: usize = 32 << 10;

/// Copies states `1..=states`.
pub fn make_copies(states: u64, announce: &mut dyn FnMut(Promise)) -> Result<(), Error> {
    let mut maker = Maker { promise: Promise::default(), announce, random: Random::new(states) };
    for state in 1..=states {
        maker.file(state)?;
        if state.is_multiple_of(LONG_EVERY) {
            maker.long(state)?;
        }
        if state.is_multiple_of(TREE_EVERY) {
            maker.tree(state)?;
        }
    }
    Ok(())
}

struct Maker<'a> {
    promise: Promise,
    announce: &'a mut dyn FnMut(Promise),
    random: Random,
}

impl Maker<'_> {
    fn announce(&mut self) {
        (self.announce)(self.promise);
    }

    /// Replaces the previous state, or copies to a free name.
    fn file(&mut self, state: u64) -> Result<(), Error> {
        let Method { engine, durability, to_a_free_name } = method_of(state);
        if to_a_free_name && Path::new(FILE).exists() {
            self.promise.file.may_be_free = true;
            self.announce();
            std::fs::remove_file(FILE).map_err(Error::io("remove", FILE))?;
        }
        self.promise.file.ceiling = state;
        self.announce();
        let mut copy = Copy::new(file_source(state), FILE).durability(durability);
        if let Some(engine) = engine {
            copy = copy.engine(engine);
        }
        copy.run()?;
        if durability == Durability::Full {
            self.promise.file.floor = state;
            self.promise.file.may_be_free = false;
        }
        self.announce();
        Ok(())
    }

    /// Interrupts and resumes the copy, and finally completes it.
    fn long(&mut self, state: u64) -> Result<(), Error> {
        self.promise.long.ceiling = state;
        self.promise.vouched_bytes = 0;
        self.announce();
        // Other engines than for `file` in the same state.
        let Method { engine, durability, .. } = method_of(state / LONG_EVERY);
        let mut copy = Copy::new(long_source(state), LONG).durability(durability).resume(true);
        if let Some(engine) = engine {
            copy = copy.engine(engine);
        }
        let mut is_complete = false;
        for _ in 0..INTERRUPTIONS {
            if !is_complete {
                let after_bytes = 1 + self.random.below(500 << 10);
                is_complete = !interrupt(&copy, after_bytes)?;
                self.promise.vouched_bytes = match is_complete {
                    true => self.promise.vouched_bytes,
                    false => journal::read(LONG).map_or(0, |journal| journal.vouched_bytes()),
                };
                self.announce();
            }
        }
        if !is_complete {
            copy.run()?;
        }
        if durability == Durability::Full {
            self.promise.long.floor = state;
            self.promise.long.may_be_free = false;
        }
        self.announce();
        Ok(())
    }

    /// Copies to a new directory.
    fn tree(&mut self, state: u64) -> Result<(), Error> {
        // The previous tree is still promised, the one before it is not.
        let older = state.checked_sub(2 * TREE_EVERY).filter(|older| *older > 0);
        if let Some(older) = older.map(tree_target) {
            std::fs::remove_dir_all(&older).map_err(Error::io("remove", older))?;
        }
        self.promise.tree_ceiling = state;
        self.announce();
        Copy::new(tree_source(state), tree_target(state)).durability(Durability::Full).run()?;
        self.promise.tree_floor = state;
        self.announce();
        Ok(())
    }
}

/// Runs a copy until this many bytes have arrived. Returns false if it was completed earlier.
fn interrupt(copy: &Copy, after_bytes: u64) -> Result<bool, Error> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let tuning = Tuning {
        chunk_bytes: STEP_BYTES,
        window_bytes: STEP_BYTES,
        direct_window_bytes: STEP_BYTES,
        pipe_bytes: STEP_BYTES,
        ring_chunk_bytes: STEP_BYTES,
        ring_depth: 2,
        ..Tuning::default()
    };
    let copy = copy.clone().tuning(tuning).cancelled_by(Arc::clone(&cancelled));
    let progress = copy.progress();
    let result = std::thread::scope(|scope| {
        let run = scope.spawn(|| copy.run());
        while !run.is_finished() && progress.arrived_bytes() < after_bytes {
            std::thread::yield_now();
        }
        cancelled.store(true, Ordering::Relaxed);
        run.join().unwrap()
    });
    match result {
        Ok(_) => Ok(false),
        Err(Error::Cancelled { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}
