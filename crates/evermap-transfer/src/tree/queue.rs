//! What is left to do, shared out over threads.
//!
//! Each thread has a queue of its own, takes what it put there last (the depths of the directory that it is in, whose
//! descriptors are open), and when it has nothing takes what another thread put there first: that is far from where
//! the other one works, so that the two don't create files in one directory, whose lock they would share.
//!
//! A task is hundreds of files or a directory, tens of microseconds at least, so a mutex for each queue is measurably as good
//! as a lock-free one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The queues of all threads.
#[derive(Debug)]
pub(super) struct Queue<T> {
    queues: Vec<Mutex<VecDeque<T>>>,
    /// Tasks that were put in and are not finished: at 0, there is nothing more to come.
    due: AtomicUsize,
    /// Threads that wait. Whoever puts something in looks here first, and mostly saves the call that wakes.
    waiting: AtomicUsize,
    stopped: AtomicBool,
    sleep: Mutex<()>,
    wake: Condvar,
}

/// A lock whose holder panicked guards plain values here: they are as good as before.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Queue<T> {
    pub(super) fn new(threads: usize) -> Queue<T> {
        Queue {
            queues: (0..threads.max(1)).map(|_| Mutex::new(VecDeque::new())).collect(),
            due: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Puts a task where `thread` takes it next, unless another one steals it.
    pub(super) fn push(&self, thread: usize, task: T) {
        self.due.fetch_add(1, Ordering::SeqCst);
        lock(&self.queues[thread]).push_back(task);
        // Sequentially consistent with the look before a wait: either the waiter sees the task, or this sees the waiter.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _awake = lock(&self.sleep);
            self.wake.notify_one();
        }
    }

    /// A task for `thread`, its own newest or another's oldest; waits while others may still make some. `None` is the end.
    pub(super) fn next(&self, thread: usize) -> Option<T> {
        loop {
            if let Some(task) = self.try_next(thread) {
                return Some(task);
            }
            let guard = lock(&self.sleep);
            self.waiting.fetch_add(1, Ordering::SeqCst);
            // Looked again now that a push would wake: no task is missed.
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

    /// The newest task of `thread`'s own, if it is one that is `wanted`, and there are more than `spare` of any kind.
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

    /// A task that was taken is finished, and has put in whatever comes after it.
    pub(super) fn finished(&self) {
        if self.due.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.wake_all();
        }
    }

    /// Nothing more is given out.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.stopped.load(Ordering::SeqCst) || self.due.load(Ordering::SeqCst) == 0
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
    fn each_task_is_done_once_and_all_threads_end() {
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
        // A whole binary tree of 13 levels.
        assert_eq!(done.into_inner(), (1 << 13) - 1);
        assert_eq!(sum.into_inner(), (0..=12u64).map(|depth| depth << (12 - depth)).sum());
    }

    #[test]
    fn what_is_stopped_ends_with_tasks_left() {
        let queue = Queue::new(2);
        queue.push(0, ());
        queue.push(1, ());
        assert!(queue.next(0).is_some());
        queue.stop();
        assert!(queue.next(0).is_none() && queue.next(1).is_none());
    }

    #[test]
    fn who_waits_is_woken_by_a_task_and_by_the_end() {
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
            // Said by the waiter itself: it may wait again before anybody sees that it did not.
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
    fn a_thread_takes_its_newest_and_steals_the_oldest() {
        let queue = Queue::new(2);
        (1..=3).for_each(|task| queue.push(0, task));
        assert_eq!((queue.next(0), queue.next(1)), (Some(3), Some(1)));
    }
}
