//! Quiet moments, and processors that do not sleep.
//!
//! Other programs on the machine spoil figures: a section begins after the processors were mostly
//! idle for half a second, or after 20 seconds with a warning. `EVERMAP_BENCH_WAIT=0` does not
//! wait.
//!
//! On a virtual machine, an idle processor may notice a completed disk write only at its next timer
//! tick, 4 ms later. [`Awake`] keeps every processor busy with a process of the lowest scheduling
//! class (`SCHED_IDLE`), which yields at once to any other process.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::Outcome;

const BUSY_MOST: f64 = 0.25;
const POLLS_MAX: usize = 40;

/// Waits until the processors are mostly idle.
pub fn wait() {
    if std::env::var("EVERMAP_BENCH_WAIT").is_ok_and(|wait| wait == "0") {
        return;
    }
    for _ in 0..POLLS_MAX {
        match busy() {
            Some(busy) if busy > BUSY_MOST => {}
            _ => return,
        }
    }
    println!("\n*The machine did not become quiet: figures are above what they should be.*");
}

/// Returns the fraction of processor time that was used in half a second.
fn busy() -> Option<f64> {
    let before = times()?;
    std::thread::sleep(Duration::from_millis(500));
    let after = times()?;
    let (idle, all) = (after.0 - before.0, after.1 - before.1);
    Some(1.0 - idle as f64 / all.max(1) as f64)
}

fn times() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let fields = text.lines().next()?.split_whitespace().skip(1);
    let ticks: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
    // User, nice, system, idle, waiting for the disk, ...
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((idle, ticks.iter().take(8).sum()))
}

/// Keeps every processor busy until it is dropped.
pub struct Awake {
    children: Vec<Child>,
}

impl Awake {
    pub fn new() -> Outcome<Awake> {
        let mut awake = Awake { children: Vec::new() };
        for processor in 0..std::thread::available_parallelism()?.get() {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["child", "spin", &processor.to_string()]).stdin(Stdio::null());
            awake.children.push(command.spawn()?);
        }
        // The child processes need time to start.
        std::thread::sleep(Duration::from_millis(200));
        Ok(awake)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for child in &mut self.children {
            // An error means that the child has already ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs as the child process: spins until it is killed or its parent ends.
pub fn spin(processor: usize) -> Outcome {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structures are plain data that live during the calls; the calls change this
    // process's scheduling only.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter) != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        let mut processors: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut processors);
        libc::sched_setaffinity(0, size_of_val(&processors), &raw const processors);
    }
    loop {
        std::hint::spin_loop();
    }
}
