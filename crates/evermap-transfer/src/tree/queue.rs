//! Work queues of a tree copy, with work stealing.
//!
//! Each thread takes the newest task of its own queue first, which is near its current directory
//! with open descriptors. An idle thread steals the oldest task of another, which is far from where
//! the other works, so that they do not contend for one directory's lock.
//!
//! A task is hundreds of files or a directory and takes tens of microseconds at least, so mutexes
//! measure as fast as a lock-free queue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The queues of all threads.
#[derive(Debug)]
pub(super) struct Queue<T> {
    queues: Vec<Mutex<VecDeque<T>>>,
    /// Tasks queued and not finished. At 0 no more tasks will come.
    pending: AtomicUsize,
    /// Number of waiting threads. Checked by `push`, which usually saves the system call that wakes
    /// one.
    waiting: AtomicUsize,
    stopped: AtomicBool,
    sleep: Mutex<()>,
    wake: Condvar,
}

/// Locks a mutex. Poisoning is ignored, because the guarded values are plain data.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Queue<T> {
    pub(super) fn new(threads: usize) -> Queue<T> {
        Queue {
            queues: (0..threads.max(1)).map(|_| Mutex::new(VecDeque::new())).collect(),
            pending: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Queues a task for `thread`. Other threads may steal it.
    pub(super) fn push(&self, thread: usize, task: T) {
        self.pending.fetch_add(1, Ordering::SeqCst);
        lock(&self.queues[thread]).push_back(task);
        // Sequentially consistent with the check before a wait: either the waiter sees the task, or
        // this sees the waiter.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _awake = lock(&self.sleep);
            self.wake.notify_one();
        }
    }

    /// Returns the newest own task or the oldest of another thread. Waits while other threads may
    /// create tasks. Returns `None` at the end.
    pub(super) fn next(&self, thread: usize) -> Option<T> {
        loop {
            if let Some(task) = self.try_next(thread) {
                return Some(task);
            }
            let guard = lock(&self.sleep);
            self.waiting.fetch_add(1, Ordering::SeqCst);
            // Checked again after registering as a waiter, so that no task is missed.
            let task = self.try_next(thread);
            let is_over = self.is_over();
            if task.is_none() && !is_over {
                drop(self.wake.wait(guard));
            }
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            if task.is_some() || is_over {
                return task;
            }
        }
    }

    /// Returns the newest own task if it is `wanted` and the own queue has more than `spare` tasks.
    pub(super) fn next_own_beyond(
        &self,
        thread: usize,
        spare: usize,
        wanted: impl Fn(&T) -> bool,
    ) -> Option<T> {
        let mut own = lock(&self.queues[thread]);
        match own.back() {
            Some(task) if own.len() > spare && wanted(task) => own.pop_back(),
            _ => None,
        }
    }

    /// Marks a task as finished. Its subsequent tasks must be queued before.
    pub(super) fn finished(&self) {
        if self.pending.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.wake_all();
        }
    }

    /// Stops the queue: `next` returns `None` from now on.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.stopped.load(Ordering::SeqCst) || self.pending.load(Ordering::SeqCst) == 0
    }

    fn wake_all(&self) {
        let _awake = lock(&self.sleep);
        self.wake.notify_all();
    }

    fn try_next(&self, thread: usize) -> Option<T> {
        if self.is_stopped() {
            return None;
        }
        if let Some(task) = lock(&self.queues[thread]).pop_back() {
            return Some(task);
        }
        let others = (1..self.queues.len()).map(|step| (thread + step) % self.queues.len());
        others.into_iter().find_map(|other| lock(&self.queues[other]).pop_front())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn each_task_runs_once_and_all_threads_end() {
        let queue = Queue::new(4);
        let (done, sum) = (AtomicU64::new(0), AtomicU64::new(0));
        queue.push(0, 12u64);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (queue, done, sum) = (&queue, &done, &sum);
                scope.spawn(move || {
                    while let Some(depth) = queue.next(thread) {
                        done.fetch_add(1, Ordering::Relaxed);
                        sum.fetch_add(depth, Ordering::Relaxed);
                        for _ in 0..if depth > 0 { 2 } else { 0 } {
                            queue.push(thread, depth - 1);
                        }
                        queue.finished();
                    }
                });
            }
        });
        // A complete binary tree of 13 levels.
        assert_eq!(done.into_inner(), (1 << 13) - 1);
        assert_eq!(sum.into_inner(), (0..=12u64).map(|depth| depth << (12 - depth)).sum());
    }

    #[test]
    fn stopped_queue_ends_with_tasks_left() {
        let queue = Queue::new(2);
        queue.push(0, ());
        queue.push(1, ());
        assert!(queue.next(0).is_some());
        queue.stop();
        assert!(queue.next(0).is_none() && queue.next(1).is_none());
    }

    #[test]
    fn waiting_thread_is_woken_by_a_task_and_by_the_end() {
        let queue = Queue::new(2);
        queue.push(0, 1);
        assert_eq!(queue.next(0), Some(1));
        let wait_for_waiter = || {
            while queue.waiting.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
        };
        let has_first = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // The waiter reports this itself, because it may wait again before another thread can
            // observe it.
            let waiter = scope.spawn(|| {
                let first = queue.next(1);
                has_first.store(true, Ordering::SeqCst);
                (first, queue.next(1))
            });
            wait_for_waiter();
            queue.push(0, 2);
            while !has_first.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            wait_for_waiter();
            queue.finished();
            queue.finished();
            assert_eq!(waiter.join().ok(), Some((Some(2), None)));
        });
    }

    #[test]
    fn thread_takes_its_newest_task_and_steals_the_oldest() {
        let queue = Queue::new(2);
        (1..=3).for_each(|task| queue.push(0, task));
        assert_eq!((queue.next(0), queue.next(1)), (Some(3), Some(1)));
    }
}
