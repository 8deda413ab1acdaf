//! Processor time of another thread of this process, by a clock that the libraries do not provide.

use std::io;

use rustix::thread::Pid;

/// Kernel's number of a thread's processor time clock: `CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED`
/// below the complement of the thread id (`include/linux/posix-timers_types.h`), as
/// `pthread_getcpuclockid` computes it.
const THREAD_CLOCK: i32 = 4 | 2;

/// Returns the nanoseconds that a thread of this process has run. Cost: one system call. Fails once
/// the thread has ended.
pub(crate) fn processor_ns(thread: Pid) -> io::Result<u64> {
    let clock = (!thread.as_raw_nonzero().get() << 3) | THREAD_CLOCK;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel validates the clock number and writes to a structure that outlives the
    // call.
    match unsafe { libc::clock_gettime(clock, &raw mut time) } {
        0 => Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_another_thread_is_read() {
        let (say, hear) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let spinner = std::thread::spawn(move || {
            let begin = std::time::Instant::now();
            while begin.elapsed().as_millis() < 30 {
                std::hint::spin_loop();
            }
            say.send(rustix::thread::gettid()).unwrap();
            let _ = ended.recv();
        });
        let thread = hear.recv().unwrap();
        let ran_ns = processor_ns(thread).unwrap();
        // It ran for at most 30 ms, and even a loaded machine gives it some time.
        assert!((1_000..60_000_000).contains(&ran_ns), "{ran_ns}");
        drop(end);
        spinner.join().unwrap();
    }
}
