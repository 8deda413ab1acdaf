//! The machine from outside: boots a kernel in QEMU with disks, reads its output, kills it.

mod lane;
mod power_failures;
mod transfer;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::guest::PARTS;
use crate::random::Random;
use crate::states::Promise;
use power_failures::PowerFailures;

/// Size of the persistent memory, and its start in the machine's memory.
const DIRECT_BYTES: u64 = 256 << 20;
const DIRECT_OFFSET: u64 = 512 << 20;
/// A machine without output for this long has hung. On a loaded host a boot takes minutes.
const SILENCE_MAX: Duration = Duration::from_secs(300);

/// Parts of a machine, from `scripts/test-vm.sh`.
struct Parts {
    kernel: PathBuf,
    initrd: PathBuf,
}

impl Parts {
    fn find() -> Option<Parts> {
        let part = |name| std::env::var_os(name).map(PathBuf::from);
        let parts = part("EVERMAP_VM_BOOT").zip(part("EVERMAP_VM_INITRD"));
        if parts.is_none() {
            eprintln!("SKIPPED: run by make test-vm, which has the machine's parts");
        }
        parts.map(|(kernel, initrd)| Parts { kernel, initrd })
    }

    /// Starts a machine for one job.
    fn boot(&self, memory: &[String], disks: &[String], orders: &[(&str, String)]) -> Machine {
        self.boot_with(2, memory, disks, orders)
    }

    /// Starts a machine with this many cores.
    fn boot_with(
        &self,
        cores: u32,
        memory: &[String],
        disks: &[String],
        orders: &[(&str, String)],
    ) -> Machine {
        let mut append = "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off".to_string();
        append += " lsm=landlock";
        append += &format!(" memmap={}M!{}M", DIRECT_BYTES >> 20, DIRECT_OFFSET >> 20);
        orders.iter().for_each(|(name, value)| append += &format!(" evermap.{name}={value}"));
        let mut child = Command::new("qemu-system-x86_64")
            .args(["-accel", "tcg", "-cpu", "max", "-smp", &cores.to_string()])
            .args(["-m", "1024", "-no-reboot"])
            .args(["-nodefaults", "-nic", "none", "-vga", "none", "-display", "none"])
            .args(["-serial", "stdio"])
            .args(memory)
            .args(disks)
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.initrd)
            .args(["-append", &append])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in output.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim().to_string();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Machine { child, lines, silent: false }
    }
}

/// A running machine, killed when this is dropped.
struct Machine {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
    /// Does not print promises: there are thousands.
    silent: bool,
}

impl Machine {
    /// Returns the next line of output, or `None` at the end.
    fn line(&mut self) -> Option<String> {
        use std::sync::mpsc::RecvTimeoutError::Timeout;
        let line = match self.lines.recv_timeout(SILENCE_MAX) {
            Ok(line) => line,
            Err(Timeout) => panic!("no output from the machine"),
            Err(_) => return None,
        };
        if !self.silent || !line.starts_with("promise ") {
            println!("  | {line}");
        }
        Some(line)
    }

    /// Waits for its end. The job must have succeeded.
    fn finish(mut self) {
        let mut well = false;
        while let Some(line) = self.line() {
            well |= line == "guest ended: 0";
        }
        let status = self.child.wait().unwrap();
        assert!(well, "the job inside the machine failed; the emulator ended with {status}");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn seed() -> u64 {
    let given = std::env::var("EVERMAP_VM_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = given.unwrap_or(now.as_nanos() as u64 >> 8);
    println!("EVERMAP_VM_SEED={seed}");
    seed
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn make_file(path: &Path, bytes: u64) {
    std::fs::File::create(path).unwrap().set_len(bytes).unwrap();
}

fn make_file_system(tool: &str, arguments: &[&str], path: &Path, size: &[&str]) {
    let output = Command::new(tool).args(arguments).arg(path).args(size).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The machine's memory as a file: the part that the kernel leaves alone outlives the machine and
/// contains an ext4 file system.
fn memory_with_a_file_system(directory: &Path) -> [String; 4] {
    let file = directory.join("memory");
    make_file(&file, 1 << 30);
    let offset = format!("offset={DIRECT_OFFSET}");
    let kibibytes = format!("{}k", DIRECT_BYTES >> 10);
    let layout = ["-q", "-F", "-t", "ext4", "-b", "4096", "-E", &offset];
    make_file_system("mke2fs", &layout, &file, &[&kibibytes]);
    let backend =
        format!("memory-backend-file,id=m,size=1024M,share=on,mem-path={}", file.display());
    ["-object", &backend, "-M", "q35,memory-backend=m"].map(str::to_string)
}

fn disk(path: &Path, more: &str) -> [String; 2] {
    ["-drive".into(), format!("if=virtio,format=raw,cache=unsafe,file={}{more}", path.display())]
}

#[test]
#[ignore = "boots a machine: make test-vm"]
fn a_power_failure_between_any_two_flushes_leaves_a_committed_state_not_older_than_promised() {
    let Some(parts) = Parts::find() else { return };
    let commits = number("EVERMAP_VM_COMMITS", 280);
    let failures = PowerFailures {
        record: ("record", vec![("commits", commits.to_string())]),
        replay: "replay",
        parts: &PARTS,
        further_disk: None,
        seconds: 120,
        only: "a_power_failure",
    };
    failures.run(&parts);
}

#[test]
#[ignore = "boots a machine: make test-vm"]
fn kills_of_a_process_on_btrfs_and_xfs_leave_a_committed_state() {
    let Some(parts) = Parts::find() else { return };
    let started = Instant::now();
    let directory = tempfile::tempdir().unwrap();
    let [btrfs, xfs] = ["btrfs.img", "xfs.img"].map(|name| directory.path().join(name));
    make_file(&btrfs, 256 << 20);
    make_file_system("mkfs.btrfs", &["-q"], &btrfs, &[]);
    make_file(&xfs, 320 << 20);
    make_file_system("mkfs.xfs", &["-q"], &xfs, &[]);
    let disks: Vec<String> = [disk(&btrfs, ""), disk(&xfs, "")].concat();
    let orders = [
        ("job", "kills".to_string()),
        ("seed", seed().to_string()),
        ("kills", number("EVERMAP_VM_KILLS", 15).to_string()),
    ];
    parts.boot(&[], &disks, &orders).finish();
    println!("btrfs, xfs: {:.0} s", started.elapsed().as_secs_f64());
}

#[test]
#[ignore = "boots a machine: make test-vm"]
fn kills_of_the_machine_lose_no_promised_state_on_persistent_memory() {
    let Some(parts) = Parts::find() else { return };
    let started = Instant::now();
    let mut random = Random::new(seed());
    let directory = tempfile::tempdir().unwrap();
    let memory = memory_with_a_file_system(directory.path());
    let mut promise: Option<Promise> = None;
    let kills = number("EVERMAP_VM_MACHINE_KILLS", 4);
    for round in 0..=kills {
        let mut orders = vec![("job", "direct".to_string())];
        orders.push(("readers", (round % 2).to_string()));
        // Every other time the machine resets itself right after a commit that grew the object.
        // Only the machine itself is fast enough to do that before something else flushes the
        // growth.
        let resets_itself = round < kills && round % 2 == 1;
        let reset_after = if resets_itself { 1 + random.below(60) } else { 0 };
        orders.push(("reset_after", reset_after.to_string()));
        if let Some(Promise { state, blob }) = promise {
            let [a, b, c, d] = [state.floor, state.ceiling, blob.floor, blob.ceiling];
            orders.push(("promise", format!("{a},{b},{c},{d}")));
        }
        let mut machine = parts.boot(&memory, &[], &orders);
        machine.silent = true;
        // The last boot judges the previous end.
        let mut wanted = if round == kills { 0 } else { 1 + random.below(300) };
        let mut found = promise.is_none();
        while wanted > 0 || !found || resets_itself {
            let Some(line) = machine.line() else { break };
            assert!(!line.starts_with("violation"), "{line}");
            assert!(!line.contains("SKIPPED"), "the file system does not support DAX");
            assert!(!line.starts_with("guest ended"), "the job ended unexpectedly");
            found |= line.starts_with("report: found");
            if let Some(said) = Promise::of_line(&line) {
                assert!(found, "the machine committed and did not judge first");
                promise = Some(said);
                wanted = wanted.saturating_sub(1);
            }
        }
        assert!(found, "the machine ended before it judged");
        if !resets_itself {
            std::thread::sleep(Duration::from_micros(random.below(50_000)));
            machine.child.kill().unwrap();
        }
        // Promises in the remaining output count too.
        while let Some(line) = machine.line() {
            promise = Promise::of_line(&line).or(promise);
        }
    }
    println!("persistent memory: {kills} kills, {:.0} s", started.elapsed().as_secs_f64());
}

#[test]
#[ignore = "boots a machine: make test-vm"]
fn write_protection_holds_with_memory_protection_keys() {
    let Some(parts) = Parts::find() else { return };
    parts.boot(&[], &[], &[("job", "protection".to_string())]).finish();
}

#[test]
#[ignore = "boots a machine: make test-vm"]
fn compartments_hold_with_keys_and_the_outer_wall_holds_on_another_kernel() {
    let Some(parts) = Parts::find() else { return };
    parts.boot(&[], &[], &[("job", "compartments".to_string())]).finish();
}
