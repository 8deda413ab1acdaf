//! Power failures from outside: one machine fills a disk that QEMU records; a second one replays
//! the recording up to crash points and judges.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::{Parts, disk, make_file, make_file_system, number, seed};
use crate::disk_log::DiskLog;
use crate::layout::{Part, image_bytes, partition_table};

/// What is recorded and judged.
pub struct PowerFailures {
    /// Job of the first machine, and its arguments.
    pub record: (&'static str, Vec<(&'static str, String)>),
    /// Job of the second machine.
    pub replay: &'static str,
    /// File systems on the recorded disk.
    pub parts: &'static [Part],
    /// Adds a disk that both machines can read.
    pub further_disk: Option<fn(&Path)>,
    /// Duration of the judgement.
    pub seconds: u64,
    /// Prefix of the test's name, to repeat it alone.
    pub only: &'static str,
}

impl PowerFailures {
    /// Records, unless an existing recording was named; then replays and judges.
    pub fn run(&self, parts: &Parts) {
        let started = Instant::now();
        let kept = std::env::var_os("EVERMAP_VM_REPLAY").map(PathBuf::from);
        let directory = kept.clone().unwrap_or_else(|| tempfile::tempdir().unwrap().keep());
        let further = self.further_disk.map(|make| (make, directory.join("further.img")));
        if let (None, Some((make, path))) = (&kept, &further) {
            make(path);
        }
        let further = further.map(|(_, path)| disk(&path, ",readonly=on"));
        let further: Vec<String> = further.into_iter().flatten().collect();
        if kept.is_none() {
            self.record(parts, &directory, &further);
        }
        let log = directory.join("disk.log");
        let parsed = DiskLog::parse(std::fs::read(&log).unwrap()).unwrap();
        let entries = parsed.entries.len();
        let flushes = (0..entries).filter(|i| parsed.is_flush(*i)).count();
        let marks = (0..entries).filter(|i| parsed.mark(*i).is_some()).count();
        println!("recorded: {entries} requests, {flushes} flushes, {marks} promises");
        assert!(marks > 0 && flushes > marks / 2, "the recording has no flushes");
        drop(parsed);
        let base = disk(&directory.join("base.img"), ",readonly=on");
        let disks = [base.to_vec(), further, disk(&log, ",readonly=on").to_vec()].concat();
        let mut orders = vec![
            ("job", self.replay.to_string()),
            ("seed", seed().to_string()),
            ("seconds", number("EVERMAP_VM_SECONDS", self.seconds).to_string()),
        ];
        orders.extend(
            std::env::var("EVERMAP_VM_CRASH_POINT").ok().map(|point| ("crash_point", point)),
        );
        let judged = std::panic::catch_unwind(|| parts.boot(&[], &disks, &orders).finish());
        if let Err(failed) = judged {
            println!(
                "repeat with: EVERMAP_VM_ONLY={} EVERMAP_VM_REPLAY={} EVERMAP_VM_CRASH_POINT=ENTRY:SEED make test-vm",
                self.only,
                directory.display()
            );
            std::panic::resume_unwind(failed);
        }
        if kept.is_none() {
            std::fs::remove_dir_all(&directory).unwrap();
        }
        println!("power failures: {:.0} s", started.elapsed().as_secs_f64());
    }

    /// Fills a recorded disk. Leaves `base.img`, the initial disk, and `disk.log`.
    fn record(&self, parts: &Parts, directory: &Path, further: &[String]) {
        let [base, disk, log] =
            ["base.img", "disk.img", "disk.log"].map(|name| directory.join(name));
        make_file(&base, image_bytes(self.parts) + (1 << 20));
        self.parts.iter().for_each(|part| make_part(part, &base));
        if self.parts.iter().all(|part| part.offset > 0) {
            let disk = std::fs::File::options().write(true).open(&base).unwrap();
            disk.write_all_at(&partition_table(self.parts), 0).unwrap();
        }
        std::fs::copy(&base, &disk).unwrap();
        make_file(&log, 0);
        let mut disks: Vec<String> = [
            "-blockdev".to_string(),
            format!("driver=file,filename={},node-name=f0,cache.direct=off", disk.display()),
            "-blockdev".to_string(),
            format!("driver=file,filename={},node-name=l0", log.display()),
            "-blockdev".to_string(),
            "driver=blklogwrites,node-name=lw,file=f0,log=l0,log-sector-size=512".to_string(),
            "-device".to_string(),
            "virtio-blk-pci,drive=lw".to_string(),
        ]
        .into();
        disks.extend_from_slice(further);
        let (job, told) = &self.record;
        let orders = [vec![("job", job.to_string())], told.clone()].concat();
        parts.boot(&[], &disks, &orders).finish();
        std::fs::remove_file(&disk).unwrap();
    }
}

fn make_part(part: &Part, disk: &Path) {
    let kibibytes = format!("{}k", part.bytes >> 10);
    let (inodes, offset) = (part.inodes.to_string(), format!("offset={}", part.offset));
    let layout =
        ["-q", "-F", "-t", "ext4", "-b", "4096", "-J", "size=4", "-N", &inodes, "-E", &offset];
    make_file_system("mke2fs", &layout, disk, &[&kibibytes]);
}
