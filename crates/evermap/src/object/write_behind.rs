//! Writes fresh memory back to the disk while the program fills more of it.
//!
//! A build that fills a GiB should overlap filling and writing. Starting write-back blocks while
//! the disk's queue is full, so a thread does it. The thread follows the end of the touched memory,
//! from the start of the fresh memory on, and starts write-back some distance before that end. It
//! starts each byte once: memory that is filled in random order is written at most one extra time.
//!
//! This is only a hint. The flush at the commit writes the rest, and reports errors.
//!
//! Invariant: the thread holds the file open, and with it the file's locks, so a [`WriteBehind`]
//! must wait for its thread before it goes away.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::at_fork;
use crate::storage::File;

/// Smaller parts are not worth a request.
const STEP_BYTES: u64 = 16 << 20;
/// The program is most likely still writing this close to the end of the touched memory.
const ACTIVE_BYTES: u64 = 4 << 20;
/// Interval between two checks. In 10 ms a program fills some 30 MiB.
const PAUSE: Duration = Duration::from_millis(10);
/// The thread ends after this many checks without progress; the next growth starts it again.
const PAUSES_MAX: u32 = 100;

/// Writes back the filled part of an object's newest memory, on a thread that runs while there is
/// progress.
#[derive(Default)]
pub(super) struct WriteBehind {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Signals a new part to follow, or the end of the thread.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    followed: Option<Followed>,
    running: bool,
}

/// Part of a file that the program fills.
struct Followed {
    file: Arc<dyn File>,
    /// Write-back was started for everything before this offset.
    at: u64,
    end: u64,
}

impl WriteBehind {
    /// Follows the filling of `length` bytes at `offset`. If they adjoin the part being followed,
    /// both are followed together; otherwise the new part replaces it. Returns at once, and does
    /// nothing if no thread can be started.
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

    /// Stops following, and waits until the thread has finished its current request.
    pub(super) fn stop(&self) {
        // A forked child does not have the thread, so it must not wait for it.
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

/// Returns the offset up to which a part of a file is completely filled, as far as the file tells;
/// `at` if the rest is not worth a request.
fn ready(file: &dyn File, at: u64, end: u64) -> u64 {
    let filled = match file.next_data(at) {
        Ok(Some((data_start, data_end))) if data_start <= at => data_end.min(end),
        _ => at,
    };
    worth_writing(at, filled, end)
}

fn worth_writing(at: u64, filled: u64, end: u64) -> u64 {
    let behind = filled.saturating_sub(ACTIVE_BYTES);
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
    fn each_byte_is_written_back_once_and_the_last_bytes_when_all_is_filled() {
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
    fn the_file_is_released_once_it_is_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = Disk::default().open(&path, OpenMode::CreateNew).unwrap();
        file.write_at(&vec![1; 1 << 20], 0).unwrap();
        assert!(file.try_lock(LockKind::Exclusive, 0, 1).unwrap());
        let behind = WriteBehind::default();
        // Longer than the file's data, so the thread keeps checking.
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
