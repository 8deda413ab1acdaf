//! Workloads of observed processes. Each prints a line when it has begun, and ends by itself after
//! a minute.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::{Timespec, clock_gettime};

const LIFE: Duration = Duration::from_secs(60);

/// Workload that runs until it is dropped.
pub struct Workload {
    child: Child,
    /// Kept open so that later output does not fail.
    said: Lines<BufReader<ChildStdout>>,
}

impl Workload {
    pub fn start(name: &str, settings: &[(&str, String)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--ignored", "--exact", "--nocapture", &format!("workloads::{name}")])
            .envs(settings.iter().map(|(name, value)| (*name, value)))
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut workload = Workload { child, said };
        let mut lines = workload.said.by_ref().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("begun")), "{name} never began");
        workload
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn setting(name: &str) -> String {
    std::env::var(name).unwrap()
}

fn begun() {
    println!("begun");
    std::io::stdout().flush().unwrap();
}

/// Calls `work` at the beginning of each period.
fn every(period_ns: u64, mut work: impl FnMut()) {
    let (begin, now) = (Instant::now(), clock_gettime(ClockId::Monotonic));
    let first_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    for n in 1.. {
        if begin.elapsed() > LIFE {
            return;
        }
        let at_ns = first_ns + n * period_ns;
        let at = Timespec {
            tv_sec: (at_ns / 1_000_000_000) as i64,
            tv_nsec: (at_ns % 1_000_000_000) as i64,
        };
        clock_nanosleep_absolute(ClockId::Monotonic, &at).unwrap();
        work();
    }
}

#[test]
#[ignore = "run by other tests"]
fn workload_periodic() {
    let period_ns = setting("PERIOD_NS").parse().unwrap();
    begun();
    every(period_ns, || {});
}

#[test]
#[ignore = "run by other tests"]
fn workload_by_chance() {
    begun();
    let begin = Instant::now();
    let mut state: u64 = setting("SEED").parse().unwrap();
    while begin.elapsed() < LIFE {
        // xorshift; the logarithm makes the waits exponentially distributed, with a mean of 8 ms.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let share = ((state >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
        std::thread::sleep(Duration::from_secs_f64(-share.ln() * 8e-3));
    }
}

#[test]
#[ignore = "run by other tests"]
fn workload_reading() {
    let mut file = std::fs::File::open(setting("FILE")).unwrap();
    begun();
    let mut bytes = [0; 8192];
    every(10_000_000, || std::io::Read::read_exact(&mut file, &mut bytes).unwrap());
}

#[test]
#[ignore = "run by other tests"]
fn workload_short() {
    begun();
    std::thread::sleep(Duration::from_millis(700));
}

#[test]
#[ignore = "run by other tests"]
fn workload_real_time() {
    let wish = libc::sched_param { sched_priority: 33 };
    // SAFETY: the kernel only reads the structure, which is a local of this function.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &wish) };
    println!("{}", if result == 0 { "begun with the right" } else { "begun without" });
    std::io::stdout().flush().unwrap();
    every(20_000_000, || {});
}
