//! The only program inside the machine: one of several jobs, selected on the kernel's command line.
//! A violation is printed and fails the program, which the init script reports.

mod crash_points;
mod lane;
mod marks;
mod transfer;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::layout::{Part, image_bytes};
use crate::random::Random;
use crate::states::{End, Promise, commit_states, judge, read_states, say};
use crash_points::Recorded;
pub use lane::PARTS as LANE_PARTS;
use marks::Marks;
pub use transfer::PARTS as COPIES_PARTS;

/// Mount point of the recorded disk.
pub const PARTS: [Part; 1] = [Part::whole(16 << 20, 128)];
/// Number of states between those in which another process reads while this one commits.
const READER_FROM: u64 = 100;
const READER_UP_TO: u64 = 180;
/// Argument of [`child_commits`] and [`child_reads`].
const DIRECTORY_VARIABLE: &str = "EVERMAP_VM_DIRECTORY";

/// Returns the `evermap.NAME=VALUE` words of the kernel's command line.
struct Orders(BTreeMap<String, String>);

impl Orders {
    fn read() -> Orders {
        let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
        let words = line.split_whitespace().filter_map(|word| word.strip_prefix("evermap."));
        let pairs = words.filter_map(|word| word.split_once('='));
        Orders(pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).and_then(|value| value.parse().ok()).unwrap_or_default()
    }
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn guest() {
    let orders = Orders::read();
    println!();
    match orders.text("job") {
        Some("record") => record(&orders),
        Some("replay") => replay(&orders),
        Some("record-copies") => transfer::record(&orders),
        Some("replay-copies") => transfer::replay(&orders),
        Some("kills") => kills(&orders),
        Some("direct") => direct(&orders),
        Some("protection") => protection(),
        Some("compartments") => compartments(),
        Some("lane") => lane::tests(&orders),
        Some("record-moves") => lane::record(),
        Some("replay-moves") => lane::replay(&orders),
        _ => eprintln!("SKIPPED: this is not the machine that make test-vm boots"),
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|e| e.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let kernel = Command::new("/bin/dmesg").output().map(|said| said.stdout).unwrap_or_default();
    let kernel = String::from_utf8_lossy(&kernel[kernel.len().saturating_sub(400)..]).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("{program} {arguments:?}: {error} The kernel's last words: {kernel}"))
}

fn mount(kind: &str, device: &str, options: &str, place: &str) -> Result<(), String> {
    // Devices appear while this program starts.
    let started = Instant::now();
    while device.starts_with('/')
        && !Path::new(device).exists()
        && started.elapsed() < Duration::from_secs(60)
    {
        std::thread::sleep(Duration::from_millis(50));
    }
    run("/bin/mount", &["-t", kind, "-o", options, device, place])
}

/// Tests write protection with keys.
fn protection() {
    let output = Command::new("/bin/protection").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().for_each(say);
    String::from_utf8_lossy(&output.stderr).lines().for_each(say);
    assert!(output.status.success(), "a promise of write protection is broken");
    assert!(said.contains("(keys) ... ok") && !said.contains("SKIPPED"), "the machine has no keys");
}

/// Tests compartments and the outer wall.
fn compartments() {
    for program in ["/bin/compartments", "/bin/wall"] {
        let output = Command::new(program).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        said.lines().for_each(say);
        String::from_utf8_lossy(&output.stderr).lines().for_each(say);
        assert!(output.status.success(), "a promise of {program} is broken");
        assert!(!said.contains("SKIPPED: compartments"), "the machine has no keys");
        assert!(!said.contains("SKIPPED: the outer wall"), "the kernel has no Landlock");
    }
}

/// Makes the kernel write pages back early and at unpredictable moments, as on a busy machine.
fn write_back_every(centiseconds: u32) {
    for name in ["dirty_writeback_centisecs", "dirty_expire_centisecs"] {
        std::fs::write(format!("/proc/sys/vm/{name}"), centiseconds.to_string()).unwrap();
    }
}

/// Commits on a disk that QEMU records, and writes the promises into the same recording.
fn record(orders: &Orders) {
    write_back_every(5);
    mount("ext4", "/dev/vda", "commit=1", "/mnt").unwrap();
    let mut marks = Marks::open("/dev/vda", image_bytes(&PARTS));
    let (mut left, started) = (orders.number("commits"), Instant::now());
    let mut reader: Option<Child> = None;
    let directory = Path::new("/mnt/store");
    commit_states(directory, End::PowerCut, &mut |promise| {
        if reader.is_none() && promise.state.floor == READER_FROM {
            reader = Some(myself("guest::child_reads", directory));
        }
        if promise.state.floor >= READER_UP_TO
            && let Some(mut reader) = reader.take()
        {
            // It ends by itself only after a violation.
            assert!(reader.try_wait().unwrap().is_none(), "the reader ended");
            reader.kill().unwrap();
            reader.wait().unwrap();
        }
        marks.write(&promise.to_line());
        left = left.saturating_sub(1);
        left > 0
    })
    .unwrap();
    say(&format!("report: commits recorded in {:.1} s", started.elapsed().as_secs_f64()));
}

/// Fails the recorded disk's power at many positions and judges each recovery.
fn replay(orders: &Orders) {
    let log = Recorded { parts: &PARTS, log_device: "/dev/vdb", rounds: 4 };
    let states = crash_points::replay(orders, &log, &mut |promise, random| {
        let promise = promise.and_then(Promise::of_line).unwrap_or_default();
        judge(Path::new("/mnt/store"), promise, random.below(2) == 0)
    });
    say(&format!("report: {states} different states found"));
}

/// Kills processes that commit on btrfs and xfs.
fn kills(orders: &Orders) {
    let mut random = Random::new(orders.number("seed"));
    for (kind, device) in [("btrfs", "/dev/vda"), ("xfs", "/dev/vdb")] {
        mount(kind, device, "noatime", "/mnt").unwrap();
        units(&["storage::"]);
        let mut last = 0;
        for _ in 0..orders.number("kills") {
            last = kill_once(Path::new("/mnt/store"), &mut random);
        }
        say(&format!("report: {kind}: {} kills, state {last} reached", orders.number("kills")));
        run("/bin/umount", &["/mnt"]).unwrap();
    }
}

/// Kills a committing child after some promises or a moment later, and judges its store.
fn kill_once(directory: &Path, random: &mut Random) -> u64 {
    let mut child = myself("guest::child_commits", directory);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let first = 1 + random.below(60) as usize;
    let mut promises: Vec<Promise> =
        lines.by_ref().filter_map(|line| Promise::of_line(&line)).take(first).collect();
    std::thread::sleep(Duration::from_micros(random.below(20_000)));
    child.kill().unwrap();
    child.wait().unwrap();
    promises.extend(lines.filter_map(|line| Promise::of_line(&line)));
    let promise = *promises.last().unwrap();
    judge(directory, promise, random.below(2) == 0).unwrap()
}

/// Starts this program again for one of the children's jobs.
fn myself(job: &str, directory: &Path) -> Child {
    Command::new("/bin/vm")
        .args(["--exact", job, "--ignored", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY_VARIABLE, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "a child inside the machine: reads beside the writer"]
fn child_reads() {
    let Ok(directory) = std::env::var(DIRECTORY_VARIABLE) else { return };
    if let Err(why) = read_states(Path::new(&directory)) {
        eprintln!("violation: a reader: {why}");
        panic!("{why}");
    }
}

#[test]
#[ignore = "a child of the kill test inside the machine"]
fn child_commits() {
    let Ok(directory) = std::env::var(DIRECTORY_VARIABLE) else { return };
    println!();
    commit_states(Path::new(&directory), End::Kill, &mut |promise| {
        say(&promise.to_line());
        true
    })
    .unwrap();
}

/// Runs the library's unit tests with the temporary directory on `/mnt`.
fn units(filters: &[&str]) {
    let output = Command::new("/bin/units")
        .args(["--nocapture", "--test-threads=1"])
        .args(filters)
        .env("TMPDIR", "/mnt")
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().for_each(|line| say(&format!("units: {line}")));
    assert!(output.status.success());
}

/// Commits on persistent memory until the machine is killed. Before that, judges the store after
/// the previous kill.
fn direct(orders: &Orders) {
    mount("ext4", "/dev/pmem0", "dax", "/mnt").unwrap();
    let directory = Path::new("/mnt/store");
    match orders.text("promise").map(|text| text.replace(',', " ")) {
        Some(text) => {
            let promise = Promise::of_line(&format!("promise {text} .")).unwrap();
            match judge(directory, promise, orders.number("readers") == 1) {
                Ok(found) => say(&format!("report: found {found}, as promised: {promise:?}")),
                Err(why) => {
                    say(&format!("violation: {why}"));
                    panic!("{why}");
                }
            }
        }
        None => units(&["storage::dax", "direct_files"]),
    }
    let reset_after = orders.number("reset_after");
    let (mut said, mut length) = (0, 0);
    commit_states(directory, End::PowerCut, &mut |promise| {
        say(&promise.to_line());
        said += 1;
        let before = std::mem::replace(&mut length, length_of_states(directory));
        if reset_after > 0 && said > reset_after && length > before {
            reset();
        }
        true
    })
    .unwrap();
}

/// Returns the size of the longest object's file, which is that of the states.
fn length_of_states(store: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(store.join("objects")) else { return 0 };
    let files = entries.flatten().filter(|entry| entry.path().extension().is_none());
    files.filter_map(|entry| Some(entry.metadata().ok()?.len())).max().unwrap_or(0)
}

/// Resets the machine without a flush, once the console has sent all output.
fn reset() -> ! {
    // SAFETY: a call on an open descriptor that passes no memory.
    unsafe { libc::tcdrain(libc::STDOUT_FILENO) };
    std::fs::write("/proc/sysrq-trigger", "b").unwrap();
    panic!("the machine was not reset");
}
