//! Engines of tree copies: sharing, verification, a requested engine.

use std::path::Path;
use std::process::Command;

use evermap_transfer::Reflink;
use evermap_transfer::engines::EngineKind;
use evermap_transfer::tree::TreeOptions;

use super::compare::{Tree, assert_same, tree};
use super::make::{copy, copy_with, everything, is_root, skip};

/// A file system in an image file. Unmounted on drop, even after a panic.
struct Mounted(tempfile::TempDir, #[allow(dead_code, reason = "held")] tempfile::NamedTempFile);

impl Mounted {
    fn new(file_system: &str) -> Option<Mounted> {
        if !is_root() {
            skip("mounting needs root");
            return None;
        }
        let image = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        image.as_file().set_len(400 << 20).unwrap();
        let point = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let run = |program: &str, arguments: &[&str]| {
            Command::new(program)
                .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
                .args(arguments)
                .output()
                .is_ok_and(|output| output.status.success())
        };
        let (file, at) = (image.path().to_str().unwrap(), point.path().to_str().unwrap());
        let is_made = run(&format!("mkfs.{file_system}"), &["-q", file])
            && run("mount", &["-o", "loop", file, at]);
        if !is_made {
            skip(&format!("{file_system} cannot be created and mounted here"));
            return None;
        }
        Some(Mounted(point, image))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Clears the extents. xfs may preallocate blocks, so its files seem to have more data.
fn without_extents(mut tree: Tree) -> Tree {
    tree.values_mut().for_each(|node| node.extents.clear());
    tree
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

#[test]
fn files_of_all_sizes_are_shared_unless_disabled() {
    for file_system in ["xfs", "btrfs"] {
        let Some(mounted) = Mounted::new(file_system) else { continue };
        let (source, target) = (mounted.path().join("source"), mounted.path().join("target"));
        everything(&source);
        std::fs::write(source.join("small"), vec![1; 5000]).unwrap();
        std::fs::write(source.join("large"), vec![2; 700_000]).unwrap();
        let before = without_extents(tree(&source));
        let report = copy(&source, &target);
        assert_same(&before, &without_extents(tree(&target)));
        let engines: Vec<_> = report.engines.iter().map(|used| used.engine).collect();
        assert_eq!(engines, [EngineKind::Reflink], "{file_system}");
        let options = TreeOptions { reflink: Reflink::Never, ..TreeOptions::default() };
        let report = copy_with(&source, &mounted.path().join("unshared"), &options);
        assert!(report.engines.iter().all(|used| used.engine != EngineKind::Reflink));
        assert_same(&before, &without_extents(tree(&mounted.path().join("unshared"))));
    }
}

#[test]
fn requested_engine_moves_all_bytes_and_verification_passes() {
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let source = temp.path().join("source");
    everything(&source);
    std::fs::write(source.join("small"), vec![1; 5000]).unwrap();
    std::fs::write(source.join("large"), vec![2; 700_000]).unwrap();
    let before = tree(&source);
    let requested =
        TreeOptions { verify: true, engine: Some(EngineKind::Sendfile), ..TreeOptions::default() };
    let report = copy_with(&source, &temp.path().join("requested"), &requested);
    assert_same(&before, &tree(&temp.path().join("requested")));
    assert!(report.engines.iter().all(|used| used.engine == EngineKind::Sendfile));
    let bytes: u64 = report.engines.iter().map(|used| used.bytes).sum();
    assert_eq!(bytes, report.counts.bytes);
    let plain = copy(&source, &temp.path().join("plain"));
    let bytes: u64 = plain.engines.iter().map(|used| used.bytes).sum();
    assert_eq!(bytes, plain.counts.bytes);
}
