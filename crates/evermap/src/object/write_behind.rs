//! Handing fresh memory to the disk while the program fills more of it.
//!
//! A build that fills a GiB should end when the disk has it, not when filling and writing have come
//! one after the other. Who hands bytes to the disk waits while its queue is full, so a thread does
//! it: it follows the end of what was touched, from the start of the fresh memory on, and begins to
//! write what lies some way behind that end. Each byte is begun once: memory that is filled in no
//! order is written at most once more than it has to be.
//!
//! It is a hint only. Nothing relies on it: the flush at the commit writes what is not written
//! then, and reports what failed.
//!
//! Invariant: the thread holds the file open, and with it the locks on it, so a [`WriteBehind`]
//! never goes before its thread is done.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::at_fork;
use crate::storage::File;

/// Less than this is not worth a request of its own.
const STEP_BYTES: u64 = 16 << 20;
/// The program is most likely still at work this close to the end of what was touched.
const HELD_BACK_BYTES: u64 = 4 << 20;
/// How often the thread looks. In 10 ms a program fills some 30 MiB.
const PAUSE: Duration = Duration::from_millis(10);
/// The thread ends after so many looks without progress; the next growth begins anew.
const PAUSES_MAX: u32 = 100;

/// Writes back what is filled of the newest memory of an object, on a thread that lives while there
/// is progress.
#[derive(Default)]
pub(super) struct WriteBehind {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Something new to follow, or the thread is done.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    followed: Option<Followed>,
    running: bool,
}

/// A part of a file that is being filled.
struct Followed {
    file: Arc<dyn File>,
    /// What lies before is on its way.
    at: u64,
    end: u64,
}

impl WriteBehind {
    /// Follows the filling of `length` bytes at `offset`, together with what is followed already if
    /// they adjoin, else in its place. Returns at once; without a thread to be had, nothing
    /// happens.
    pub(super) fn follow(&self, file: Arc<dyn File>, offset: u64, length: u64) {
        let mut state = self.shared.lock();
        let end = offset + length;
        let at = match &state.followed {
            Some(before) if before.end == offset => before.at,
            _ => offset,
        };
        state.followed = Some(Followed { file, at, end });
        if state.running {
            self.shared.changed.notify_all();
            return;
        }
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("evermap-writer".to_string());
        match thread.spawn(move || shared.run()) {
            Ok(_) => state.running = true,
            Err(_) => state.followed = None,
        }
    }

    /// Follows nothing any more, and waits until the thread is done with what it has begun.
    pub(super) fn stop(&self) {
        // A forked child has no such thread: it must not wait for one.
        if at_fork::is_child() {
            return;
        }
        let mut state = self.shared.lock();
        state.followed = None;
        self.shared.changed.notify_all();
        while state.running {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for WriteBehind {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        let mut pauses = 0;
        while let Some(Followed { file, at, end }) = &state.followed {
            let (file, at, end) = (Arc::clone(file), *at, *end);
            drop(state);
            let ready = ready(&*file, at, end);
            if ready > at {
                file.start_write_back(at, ready - at);
            }
            drop(file);
            state = self.lock();
            match &mut state.followed {
                Some(followed) if ready > at && followed.at == at => followed.at = ready,
                _ => {}
            }
            if state.followed.as_ref().is_some_and(|f| f.at >= f.end) || pauses == PAUSES_MAX {
                break;
            }
            pauses = if ready > at { 0 } else { pauses + 1 };
            let waited = self.changed.wait_timeout(state, PAUSE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.running = false;
        self.changed.notify_all();
    }
}

/// Up to where a part of a file is filled for good, as far as can be told; `at` when that is not
/// worth a request.
fn ready(file: &dyn File, at: u64, end: u64) -> u64 {
    let filled = match file.next_data(at) {
        Ok(Some((data_start, data_end))) if data_start <= at => data_end.min(end),
        _ => at,
    };
    worth_writing(at, filled, end)
}

fn worth_writing(at: u64, filled: u64, end: u64) -> u64 {
    let behind = filled.saturating_sub(HELD_BACK_BYTES);
    if filled == end {
        end
    } else if behind >= at + STEP_BYTES {
        behind
    } else {
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Disk, LockKind, OpenMode, Storage};

    #[test]
    fn each_byte_is_begun_once_and_the_last_ones_when_all_is_filled() {
        let end = 100 << 20;
        let (mut at, mut requests) = (1 << 20, 0);
        for filled in (at..=end).step_by(PAGE as usize) {
            let ready = worth_writing(at, filled, end);
            assert!(ready == at || ready >= at + STEP_BYTES || ready == end);
            assert!(ready <= filled.max(at) && (filled == end || filled - at < 2 * STEP_BYTES));
            requests += u32::from(ready > at);
            at = ready;
        }
        assert_eq!(at, end);
        assert!((2..=99 / 16 + 1).contains(&requests), "{requests}");
    }

    const PAGE: u64 = crate::format::PAGE_BYTES;

    #[test]
    fn nothing_holds_the_file_once_it_is_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = Disk::default().open(&path, OpenMode::CreateNew).unwrap();
        file.write_at(&vec![1; 1 << 20], 0).unwrap();
        assert!(file.try_lock(LockKind::Exclusive, 0, 1).unwrap());
        let behind = WriteBehind::default();
        // More than there is: the thread goes on looking.
        behind.follow(Arc::clone(&file), 0, 64 << 20);
        behind.follow(Arc::clone(&file), 64 << 20, 64 << 20);
        assert!(behind.shared.lock().followed.as_ref().is_some_and(|f| f.end == 128 << 20));
        behind.stop();
        assert!(!behind.shared.lock().running);
        drop(file);
        let again = Disk::default().open(&path, OpenMode::ReadWrite).unwrap();
        assert!(again.try_lock(LockKind::Exclusive, 0, 1).unwrap());
    }
}
