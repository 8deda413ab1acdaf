//! Power cuts: a recorded disk is brought to where it was at some moment, as far as it was flushed then and with
//! some of what was in flight, is mounted, and judged.

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

/// Judges what is mounted by the last promise, if one was made; gives the number of the state that it found.
pub type Judge<'a> = dyn FnMut(Option<&str>, &mut Random) -> Result<u64, String> + 'a;

/// A recording: the disk as it was before is `/dev/vda`.
pub struct Recorded {
    /// Its file systems; marks lie behind them.
    pub parts: &'static [Part],
    /// What it was sent since.
    pub log_device: &'static str,
    /// Rounds that cut between all flushes: each goes through the whole recording.
    pub rounds: usize,
}

/// A place in a log at which the power is cut, and the seed of what is left of the last writes.
#[derive(Clone, Copy, Debug)]
struct Cut {
    entry: usize,
    seed: u64,
}

impl Cut {
    /// From `ENTRY:SEED`.
    fn parse(text: &str) -> Cut {
        let (entry, seed) = text.split_once(':').unwrap();
        Cut { entry: entry.parse().unwrap(), seed: seed.parse().unwrap() }
    }
}

/// Cuts until the time that was ordered is over, and says how many different states were found. Panics if there was a violation.
pub fn replay(orders: &Orders, recorded: &Recorded, judge: &mut Judge<'_>) -> usize {
    let image_bytes = image_bytes(recorded.parts);
    let mut base = vec![0; image_bytes as usize];
    File::open("/dev/vda").unwrap().read_exact(&mut base).unwrap();
    let mut bytes = Vec::new();
    File::open(recorded.log_device).unwrap().read_to_end(&mut bytes).unwrap();
    let mut log = DiskLog::parse(bytes).unwrap();
    log.begins = recorded.parts.iter().map(|part| part.offset as usize / SECTOR).collect();
    let only = orders.text("cut").map(Cut::parse);
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
    // Each round goes through the whole recording and cuts once between every so many flushes; as
    // many rounds make all of them. On and on until the time is over.
    for round in 0.. {
        let cuts = match only {
            Some(cut) if round == 0 => vec![cut],
            None if Instant::now() < deadline => {
                plan(&log, &mut random, round % recorded.rounds, recorded.rounds)
            }
            _ => break,
        };
        let mut image = base.clone();
        let mut done = 0;
        let mut promise = None;
        for cut in cuts {
            if only.is_none() && Instant::now() > deadline {
                break;
            }
            let flushed = (done..cut.entry).rev().find(|i| log.is_flush(*i)).unwrap_or(done);
            (done..flushed).for_each(|i| log.apply(i, &mut image).unwrap());
            promise = (done..cut.entry).filter_map(|i| log.mark(i)).next_back().or(promise);
            done = flushed;
            if let Err(why) = bench.cut(&image, flushed, cut, promise) {
                violations += 1;
                say(&format!("violation: cut {}:{}: {why}", cut.entry, cut.seed));
            }
        }
    }
    let (judged, in_flight) = (bench.judged, bench.in_flight);
    say(&format!(
        "report: {judged} cuts judged, {in_flight} of them with writes in flight; {violations} violations"
    ));
    assert_eq!(violations, 0);
    assert!(judged > 0);
    bench.found.len()
}

/// One cut between any two flushes, in order: those of one round.
fn plan(log: &DiskLog, random: &mut Random, round: usize, rounds: usize) -> Vec<Cut> {
    let flushes = (0..log.entries.len()).filter(|i| log.is_flush(*i));
    let mut cuts = Vec::new();
    let mut start = 0;
    for end in flushes.chain([log.entries.len()]) {
        // At least the flush before is done; at most everything up to the next one is sent.
        let entry = start + random.below((end - start) as u64 + 1) as usize;
        cuts.push(Cut { entry, seed: random.next() });
        start = end + 1;
    }
    cuts.into_iter().skip(round).step_by(rounds).collect()
}

/// Where cut disks are judged.
struct Bench<'a, 'j> {
    log: &'a DiskLog,
    /// Cuts with writes that no flush had followed.
    in_flight: u64,
    judged: u64,
    found: BTreeMap<u64, u64>,
    disk: Disk,
    mounts: Vec<Mounts>,
    wanted: Vec<u8>,
    judge: &'a mut Judge<'j>,
}

/// How a file system of a cut disk is mounted, again and again.
struct Mounts {
    device: String,
    options: &'static str,
    place: &'static str,
}

impl Mounts {
    /// Once the disk is there.
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

    /// What the mount has set up for itself goes with it.
    fn unmount(&self) -> Result<(), String> {
        match self.options {
            "loop" => run("/bin/umount", &["-d", self.place]),
            _ => run("/bin/umount", &[self.place]),
        }
    }
}

/// The file that a cut disk is mounted from.
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

    /// Writes what differs: the emulated processor takes most of a second for the whole.
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
    fn cut(
        &mut self,
        flushed: &[u8],
        from: usize,
        cut: Cut,
        promise: Option<&str>,
    ) -> Result<(), String> {
        let mut random = Random::new(cut.seed);
        self.wanted.copy_from_slice(flushed);
        // The flush itself changes nothing.
        let from = if from < cut.entry && self.log.is_flush(from) { from + 1 } else { from };
        self.log.apply_some(from..cut.entry, &mut self.wanted, &mut random)?;
        self.in_flight += u64::from(from < cut.entry);
        self.disk.set(&self.wanted)?;
        self.mounts.iter().try_for_each(Mounts::mount)?;
        let judge = std::panic::AssertUnwindSafe(|| (self.judge)(promise, &mut random));
        let judged = std::panic::catch_unwind(judge);
        self.mounts.iter().try_for_each(Mounts::unmount)?;
        self.judged += 1;
        if self.judged.is_multiple_of(100) {
            say(&format!("progress: {} cuts, at entry {}", self.judged, cut.entry));
        }
        let found = judged.unwrap_or_else(|_| Err("the judge panicked".to_string()))?;
        *self.found.entry(found).or_default() += 1;
        Ok(())
    }
}
