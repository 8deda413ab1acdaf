//! Simulated machine: files of `/proc` and `/sys` in a temporary directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use evermap_lane::machine::{Machine, Roots};

pub struct Mock {
    directory: tempfile::TempDir,
}

impl Mock {
    /// Machine with these cores, all online and allowed.
    pub fn with_cores(list: &str) -> Self {
        let mock = Mock { directory: tempfile::tempdir().unwrap() };
        mock.sys("devices/system/cpu/possible", list)
            .sys("devices/system/cpu/online", list)
            .allowed(list)
    }

    /// Machine without any files.
    pub fn silent() -> Self {
        let mock = Mock { directory: tempfile::tempdir().unwrap() };
        fs::create_dir_all(mock.roots().proc).unwrap();
        mock
    }

    pub fn roots(&self) -> Roots {
        Roots { proc: self.directory.path().join("proc"), sys: self.directory.path().join("sys") }
    }

    pub fn look(&self) -> Machine {
        Machine::detect_in(&self.roots()).unwrap()
    }

    pub fn path_of_sys(&self, name: &str) -> PathBuf {
        self.roots().sys.join(name)
    }

    pub fn proc(self, name: &str, text: &str) -> Self {
        write(&self.roots().proc.join(name), text);
        self
    }

    pub fn sys(self, name: &str, text: &str) -> Self {
        write(&self.roots().sys.join(name), text);
        self
    }

    pub fn allowed(self, list: &str) -> Self {
        self.proc(
            "self/status",
            &format!("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t{list}\n"),
        )
    }

    /// Adds a disk at a new device below `sys/devices`.
    pub fn disk(self, name: &str, device: &str) -> Self {
        let device = self.path_of_sys("devices").join(device);
        let block = self.path_of_sys("block").join(name);
        fs::create_dir_all(&device).unwrap();
        fs::create_dir_all(&block).unwrap();
        symlink(device, block.join("device")).unwrap();
        self
    }

    pub fn link(self, target: &str, at: &str) -> Self {
        let at = self.path_of_sys(at);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        symlink(self.path_of_sys(target), at).unwrap();
        self
    }

    /// Writes `/proc/interrupts` with number, counts by core, and name. Each interrupt is served by
    /// the core with the highest count, unless `served_by` changes that.
    pub fn interrupts(mut self, cores: &[u32], all: &[(u32, &[u64], &str)]) -> Self {
        let mut text: String = cores.iter().map(|core| format!(" CPU{core}")).collect();
        text.push('\n');
        for (number, counts, name) in all {
            let counts: String = counts.iter().map(|count| format!("{count:>11}")).collect();
            text.push_str(&format!(
                "{number:>4}:{counts}  PCI-MSIX-0000:00:02.0   1-edge      {name}\n"
            ));
        }
        text.push_str(" LOC:  1  Local timer interrupts\n ERR:  0\n");
        self = self.proc("interrupts", &text);
        for (number, counts, _) in all {
            let most = counts.iter().enumerate().max_by_key(|(_, count)| **count).unwrap().0;
            self = self.served_by(*number, &cores[most].to_string());
        }
        self
    }

    /// Adds a thread of a process, with its policy as a number, its kernel flags, and its cores.
    pub fn thread(self, process: u32, name: &str, policy: u32, flags: u32, cores: &str) -> Self {
        let between = " 0".repeat(31);
        let stat = format!("{process} ({name}) S 1 1 1 0 -1 {flags}{between} {policy} 0 0\n");
        self.proc(&format!("{process}/stat"), &stat)
            .proc(&format!("{process}/task/{process}/stat"), &stat)
            .proc(
                &format!("{process}/task/{process}/status"),
                &format!("Name:\tx\nCpus_allowed_list:\t{cores}\n"),
            )
    }

    pub fn served_by(self, number: u32, list: &str) -> Self {
        self.proc(&format!("irq/{number}/effective_affinity_list"), &format!("{list}\n"))
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}
