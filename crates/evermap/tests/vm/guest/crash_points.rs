//! Power failures: replays a recorded disk up to a crash point, with all flushed writes and some of
//! the later ones, mounts it, and judges it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Orders, mount, run};
use crate::disk_log::{DiskLog, SECTOR};
use crate::layout::{Part, image_bytes};
use crate::random::Random;
use crate::states::say;

/// Judges the mounted store by the last promise, if there is one. Returns the number of the state.
pub type Judge<'a> = dyn FnMut(Option<&str>, &mut Random) -> Result<u64, String> + 'a;

/// A recording. The initial disk is `/dev/vda`.
pub struct Recorded {
    /// Its file systems; marks are stored after them.
    pub parts: &'static [Part],
    /// All writes since.
    pub log_device: &'static str,
    /// Number of rounds that cover all flushes. Each round goes through the whole recording.
    pub rounds: usize,
}

/// A crash point in a log, and the seed for the writes after the last flush.
#[derive(Clone, Copy, Debug)]
struct CrashPoint {
    entry: usize,
    seed: u64,
}

impl CrashPoint {
    /// Parses `ENTRY:SEED`.
    fn parse(text: &str) -> CrashPoint {
        let (entry, seed) = text.split_once(':').unwrap();
        CrashPoint { entry: entry.parse().unwrap(), seed: seed.parse().unwrap() }
    }
}

/// Explores crash points until the requested time is over, and prints the number of different
/// states. Panics after a violation.
pub fn replay(orders: &Orders, recorded: &Recorded, judge: &mut Judge<'_>) -> usize {
    let image_bytes = image_bytes(recorded.parts);
    let mut base = vec![0; image_bytes as usize];
    File::open("/dev/vda").unwrap().read_exact(&mut base).unwrap();
    let mut bytes = Vec::new();
    File::open(recorded.log_device).unwrap().read_to_end(&mut bytes).unwrap();
    let mut log = DiskLog::parse(bytes).unwrap();
    log.begins = recorded.parts.iter().map(|part| part.offset as usize / SECTOR).collect();
    let only = orders.text("crash_point").map(CrashPoint::parse);
    let deadline = Instant::now() + Duration::from_secs(orders.number("seconds"));
    let mut random = Random::new(orders.number("seed"));
    let mut bench = Bench {
        log: &log,
        in_flight: 0,
        judged: 0,
        found: BTreeMap::new(),
        disk: Disk::new(image_bytes),
        mounts: recorded.parts.iter().map(Mounts::of).collect(),
        wanted: base.clone(),
        judge,
    };
    let mut violations = 0;
    // Each round goes through the whole recording with one crash point per group of flushes.
    // Together, `rounds` rounds cover all flushes. Repeat until the time is over.
    for round in 0.. {
        let points = match only {
            Some(point) if round == 0 => vec![point],
            None if Instant::now() < deadline => {
                plan(&log, &mut random, round % recorded.rounds, recorded.rounds)
            }
            _ => break,
        };
        let mut image = base.clone();
        let mut done = 0;
        let mut promise = None;
        for point in points {
            if only.is_none() && Instant::now() > deadline {
                break;
            }
            let flushed = (done..point.entry).rev().find(|i| log.is_flush(*i)).unwrap_or(done);
            (done..flushed).for_each(|i| log.apply(i, &mut image).unwrap());
            promise = (done..point.entry).filter_map(|i| log.mark(i)).next_back().or(promise);
            done = flushed;
            if let Err(why) = bench.judge_at(&image, flushed, point, promise) {
                violations += 1;
                say(&format!("violation: crash point {}:{}: {why}", point.entry, point.seed));
            }
        }
    }
    let (judged, in_flight) = (bench.judged, bench.in_flight);
    say(&format!(
        "report: {judged} crash points judged, {in_flight} of them with writes in flight; {violations} violations"
    ));
    assert_eq!(violations, 0);
    assert!(judged > 0);
    bench.found.len()
}

/// Returns the crash points of one round, in order.
fn plan(log: &DiskLog, random: &mut Random, round: usize, rounds: usize) -> Vec<CrashPoint> {
    let flushes = (0..log.entries.len()).filter(|i| log.is_flush(*i));
    let mut points = Vec::new();
    let mut start = 0;
    for end in flushes.chain([log.entries.len()]) {
        // After the previous flush, and at most before the next one.
        let entry = start + random.below((end - start) as u64 + 1) as usize;
        points.push(CrashPoint { entry, seed: random.next() });
        start = end + 1;
    }
    points.into_iter().skip(round).step_by(rounds).collect()
}

/// Judges disks after a power failure.
struct Bench<'a, 'j> {
    log: &'a DiskLog,
    /// Crash points with writes that no flush had followed.
    in_flight: u64,
    judged: u64,
    found: BTreeMap<u64, u64>,
    disk: Disk,
    mounts: Vec<Mounts>,
    wanted: Vec<u8>,
    judge: &'a mut Judge<'j>,
}

/// Mounts the file systems of a disk after a power failure, repeatedly.
struct Mounts {
    device: String,
    options: &'static str,
    place: &'static str,
}

impl Mounts {
    /// Prepares the mount point. The disk must exist.
    fn of(part: &Part) -> Mounts {
        if part.offset == 0 {
            return Mounts { device: Disk::PATH.into(), options: "loop", place: part.place };
        }
        let free = Command::new("/bin/losetup").arg("-f").output().unwrap();
        let device = String::from_utf8(free.stdout).unwrap().trim().to_owned();
        run("/bin/losetup", &["-o", &part.offset.to_string(), &device, Disk::PATH]).unwrap();
        std::fs::create_dir_all(part.place).unwrap();
        Mounts { device, options: "rw", place: part.place }
    }

    fn mount(&self) -> Result<(), String> {
        mount("ext4", &self.device, self.options, self.place)
    }

    /// Unmounting discards the mount's own state.
    fn unmount(&self) -> Result<(), String> {
        match self.options {
            "loop" => run("/bin/umount", &["-d", self.place]),
            _ => run("/bin/umount", &[self.place]),
        }
    }
}

/// File with the disk that is mounted.
struct Disk {
    file: File,
    now: Vec<u8>,
}

impl Disk {
    const PATH: &str = "/tmp/disk.img";

    fn new(bytes: u64) -> Disk {
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(Disk::PATH);
        let file = file.unwrap();
        file.set_len(bytes).unwrap();
        Disk { file, now: vec![0; bytes as usize] }
    }

    /// Writes only differences: the emulated processor takes most of a second for the whole disk.
    fn set(&mut self, wanted: &[u8]) -> Result<(), String> {
        const BLOCK: usize = 64 * 1024;
        self.file.read_exact_at(&mut self.now, 0).map_err(|e| e.to_string())?;
        for (i, (now, wanted)) in self.now.chunks(BLOCK).zip(wanted.chunks(BLOCK)).enumerate() {
            if now != wanted {
                self.file.write_all_at(wanted, (i * BLOCK) as u64).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }
}

impl Bench<'_, '_> {
    fn judge_at(
        &mut self,
        flushed: &[u8],
        from: usize,
        point: CrashPoint,
        promise: Option<&str>,
    ) -> Result<(), String> {
        let mut random = Random::new(point.seed);
        self.wanted.copy_from_slice(flushed);
        // The flush itself changes nothing.
        let from = if from < point.entry && self.log.is_flush(from) { from + 1 } else { from };
        self.log.apply_some(from..point.entry, &mut self.wanted, &mut random)?;
        self.in_flight += u64::from(from < point.entry);
        self.disk.set(&self.wanted)?;
        self.mounts.iter().try_for_each(Mounts::mount)?;
        let judge = std::panic::AssertUnwindSafe(|| (self.judge)(promise, &mut random));
        let judged = std::panic::catch_unwind(judge);
        self.mounts.iter().try_for_each(Mounts::unmount)?;
        self.judged += 1;
        if self.judged.is_multiple_of(100) {
            say(&format!("progress: {} crash points, at entry {}", self.judged, point.entry));
        }
        let found = judged.unwrap_or_else(|_| Err("the judge panicked".to_string()))?;
        *self.found.entry(found).or_default() += 1;
        Ok(())
    }
}
