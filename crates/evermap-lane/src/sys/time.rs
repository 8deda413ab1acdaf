//! The processor time of another thread of this process, which has a clock of its own that the libraries have no name for.

use std::io;

use rustix::thread::Pid;

/// The kernel's number of a thread's clock of processor time: `CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED` below the id's complement
/// (`include/linux/posix-timers_types.h`), the same that `pthread_getcpuclockid` makes.
const OF_A_THREAD: i32 = 4 | 2;

/// Nanoseconds that a thread of this process has run. Cost: one system call. An error once it has ended.
pub(crate) fn processor_ns(thread: Pid) -> io::Result<u64> {
    let clock = (!thread.as_raw_nonzero().get() << 3) | OF_A_THREAD;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel checks the clock's number, and writes the time to a structure that lives through the call.
    match unsafe { libc::clock_gettime(clock, &raw mut time) } {
        0 => Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_thread_s_time_is_its_own() {
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
        // It ran for 30 ms at most, and of a loaded machine it got something.
        assert!((1_000..60_000_000).contains(&ran_ns), "{ran_ns}");
        drop(end);
        spinner.join().unwrap();
    }
}
