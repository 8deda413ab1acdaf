//! Trees of various shapes: deep, wide, linked, random.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use evermap_transfer::tree::{self, Outcome, TreeMeter, TreeOptions};
use evermap_transfer::{Durability, Error};

use crate::child::command;
use crate::compare::{assert_same, temporary_names, tree};
use crate::make::{chain, chain_of, copy, copy_with, fast, remove, set_mode, set_times, set_xattr};

#[test]
fn ten_thousand_levels_are_copied() {
    const LEVELS: usize = 10_000;
    let temp = fast();
    let (source, target) = (temp.path().join("source"), temp.path().join("target"));
    chain(&source, LEVELS);
    let report = copy(&source, &target);
    assert_eq!(report.counts.directories, LEVELS as u64 + 1);
    assert_eq!(chain_of(&target), chain_of(&source));
    assert_eq!(chain_of(&target).0, LEVELS);
    remove(&source);
    remove(&target);
}

#[test]
fn cancelled_copy_of_ten_thousand_levels_is_removed() {
    let temp = fast();
    let (source, target) = (temp.path().join("source"), temp.path().join("target"));
    chain(&source, 10_000);
    let cancelled = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let meter = TreeMeter::new(std::sync::Arc::clone(&cancelled));
    let copied = std::thread::scope(|scope| {
        let copying = scope.spawn(|| tree::copy(&source, &target, &TreeOptions::default(), &meter));
        crate::child::cancel_after(&meter, 4, &cancelled);
        copying.join().unwrap()
    });
    assert!(matches!(copied, Err(Error::Cancelled { .. })), "{copied:?}");
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1, "temporary files remain");
    remove(&source);
}

#[test]
fn deep_branching_tree_needs_few_descriptors() {
    let temp = fast();
    let (source, target) = (temp.path().join("source"), temp.path().join("target"));
    let mut path = source.clone();
    for level in 0..300 {
        for branch in ["a", "b", "c"] {
            fs::create_dir_all(path.join(branch)).unwrap();
            fs::write(path.join(branch).join("file"), format!("{level}{branch}")).unwrap();
        }
        fs::hard_link(path.join("a/file"), path.join("c/linked")).unwrap();
        path = path.join("b");
    }
    let copying = command(&source, &target, false);
    let mut limited = std::process::Command::new("sh");
    limited
        .args(["-c", "ulimit -n 48; exec \"$0\" \"$@\""])
        .arg(copying.get_program())
        .args(copying.get_args());
    for (name, value) in copying.get_envs() {
        limited.env(name, value.unwrap());
    }
    let output = limited.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let (before, after) = (tree(&source), tree(&target));
    assert_same(&before, &after);
}

#[test]
fn hundred_thousand_entries_in_one_directory_are_copied() {
    let temp = fast();
    let (source, target) = (temp.path().join("source"), temp.path().join("target"));
    fs::create_dir(&source).unwrap();
    for name in 0..90_000 {
        fs::File::create(source.join(format!("file {name}"))).unwrap();
    }
    for name in 0..10_000 {
        fs::create_dir(source.join(format!("directory {name}"))).unwrap();
    }
    let report = copy(&source, &target);
    assert_eq!((report.counts.files, report.counts.directories), (90_000, 10_001));
    let mut names: Vec<_> =
        fs::read_dir(&source).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let mut copied: Vec<_> =
        fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    copied.sort();
    assert_eq!(names, copied);
}

#[test]
fn inode_with_names_in_many_directories_stays_one_inode() {
    let temp = fast();
    let (source, target) = (temp.path().join("source"), temp.path().join("target"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("first"), vec![7; 300 << 10]).unwrap();
    for name in 0..500 {
        let directory = source.join(format!("{}/{}", name % 50, name % 7));
        fs::create_dir_all(&directory).unwrap();
        fs::hard_link(source.join("first"), directory.join(name.to_string())).unwrap();
    }
    for durability in [Durability::None, Durability::Full] {
        copy_with(&source, &target, &TreeOptions { durability, ..TreeOptions::default() });
        assert_eq!(fs::metadata(target.join("first")).unwrap().nlink(), 501);
        assert_same(&tree(&source), &tree(&target));
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// Creates a tree with a few names of every kind.
    fn tree(&mut self, root: &Path) {
        fs::create_dir(root).unwrap();
        let (mut directories, mut files) = (vec![root.to_path_buf()], Vec::<PathBuf>::new());
        for name in 0..self.below(15) {
            let directory = directories[self.below(directories.len() as u64) as usize].clone();
            let path = directory
                .join(format!("{name}{}", ["", " ", "\n", "ä", "."][self.below(5) as usize]));
            match self.below(10) {
                0..=2 => {
                    fs::create_dir(&path).unwrap();
                    directories.push(path);
                }
                3 => std::os::unix::fs::symlink(format!("../{name}"), &path).unwrap(),
                4 if !files.is_empty() => {
                    fs::hard_link(&files[self.below(files.len() as u64) as usize], &path).unwrap();
                    files.push(path);
                }
                5 => {
                    let data = [(self.below(8) * 4096, 1 + self.below(9000) as usize)];
                    crate::make::sparse(&path, self.below(1 << 17) + 50_000, &data);
                    files.push(path);
                }
                _ => {
                    fs::write(&path, vec![name as u8; self.below(9000) as usize]).unwrap();
                    files.push(path);
                }
            }
        }
        for path in &files {
            set_mode(path, 0o400 | self.below(0o1000) as u32);
            if self.below(4) == 0 {
                set_xattr(path, "user.random", &self.below(u64::MAX).to_le_bytes());
            }
        }
        for (index, path) in files.iter().chain(directories.iter().rev()).enumerate() {
            set_times(path, index as i64 + self.below(1 << 20) as i64);
        }
    }
}

#[test]
fn thousand_random_trees_are_copied_and_merged() {
    let seed = std::env::var("EVERMAP_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("EVERMAP_TEST_SEED={seed}");
    let temp = fast();
    for round in 0..1000 {
        let mut random = Random(seed + round);
        let (source, target) = (temp.path().join("source"), temp.path().join("target"));
        random.tree(&source);
        let before = tree(&source);
        let merges = random.below(3) == 0;
        if merges {
            // Another random tree. Some names collide, all of them files on one side and
            // directories on the other.
            Random(seed + round + 1_000_000).tree(&target);
        }
        let threads = std::num::NonZeroUsize::new(1 + random.below(4) as usize);
        let options = TreeOptions { threads, keep_going: true, ..TreeOptions::default() };
        let report = copy_with(&source, &target, &options);
        let after = tree(&target);
        if merges {
            assert_eq!(report.outcome, Outcome::Merged);
            for (name, node) in &before {
                let collides = report
                    .errors
                    .iter()
                    .any(|error| error.to_string().contains(target.to_str().unwrap()));
                if !collides {
                    assert_eq!(node.content, after[name].content, "round {round}: {name:?}");
                    assert_eq!(
                        (node.kind, node.mode),
                        (after[name].kind, after[name].mode),
                        "round {round}: {name:?}"
                    );
                }
            }
        } else {
            assert!(
                report.errors.is_empty() && report.not_kept.is_empty(),
                "round {round}: {report:?}"
            );
            assert_same(&before, &after);
        }
        assert!(temporary_names(temp.path()).is_empty(), "round {round}");
        fs::remove_dir_all(&source).unwrap();
        fs::remove_dir_all(&target).unwrap();
    }
}
