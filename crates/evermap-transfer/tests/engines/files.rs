//! Transfers from file to file.

use evermap_transfer::engines::{EngineKind, Tuning};
use evermap_transfer::{Ends, Meter, Span, Work};
use proptest::prelude::*;
use std::os::unix::fs::{FileExt, MetadataExt};

use super::common::*;

/// Returns sizes around pages and around the bytes each engine moves at a time.
fn sizes() -> Vec<usize> {
    let edges = [4096, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20];
    let around = edges.into_iter().flat_map(|edge| [edge - 1, edge, edge + 1]);
    [0, 1, 511, 512, 513].into_iter().chain(around).collect()
}

#[test]
fn file_of_any_size_is_copied_completely() {
    for dir in test_dirs() {
        for kind in EngineKind::ALL {
            for (seed, size) in sizes().into_iter().enumerate() {
                let bytes = noise(size, seed as u64);
                let ((source, from), (target, to)) =
                    (dir.file("source", &bytes), dir.file("target", b""));
                let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
                finish(kind, &small(), &ends, &mut whole(size), 100_000);
                assert_same(
                    &format!("{kind} on {}, {size} bytes", dir.name),
                    &contents(&to),
                    &bytes,
                );
            }
        }
    }
}

#[test]
fn file_larger_than_all_default_sizes_is_copied_completely() {
    for dir in test_dirs() {
        let bytes = noise((36 << 20) + 4097, 5);
        let (source, from) = dir.file("source", &bytes);
        for kind in EngineKind::ALL {
            let (target, to) = dir.file("target", b"");
            let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
            finish(kind, &Tuning::default(), &ends, &mut whole(bytes.len()), u64::MAX);
            assert_same(&format!("{kind} on {}", dir.name), &contents(&to), &bytes);
        }
    }
}

#[test]
fn engines_support_their_intended_ends() {
    use EngineKind::*;
    if !has_rings() {
        return;
    }
    for dir in test_dirs() {
        let bytes = noise(300_000, 8);
        let (source, from) = dir.file("source", &bytes);
        for kind in EngineKind::ALL {
            let (target, to) = dir.file("target", b"");
            let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
            let meter = Meter::default();
            let mut work = whole(bytes.len());
            let served =
                matches!(attempt(kind, &small(), &ends, &mut work, &meter, 100_000), Some(Ok(())));
            // `disk` may be any file system, so reflinks are tested only on file systems created
            // for that.
            let expected = match kind {
                Reflink => continue,
                MmapDirect | UringDirect if dir.name == "disk" => ends.target.direct().is_some(),
                MmapDirect | UringDirect => false,
                _ => true,
            };
            assert_eq!(served, expected, "{kind} on {}", dir.name);
            if served {
                assert_eq!(meter.arrived_bytes(), bytes.len() as u64, "{kind}");
                assert!(meter.calls() > 0, "{kind}");
            }
        }
    }
}

#[test]
fn flags_of_the_callers_descriptors_are_unchanged() {
    let dir = disk();
    let bytes = noise(300_000, 9);
    let ((source, from), (target, to)) = (dir.file("source", &bytes), dir.file("target", b""));
    let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
    let flags = || [&source, &target].map(|file| rustix::fs::fcntl_getfl(file).unwrap());
    let before = flags();
    for kind in EngineKind::ALL {
        finish(kind, &small(), &ends, &mut whole(bytes.len()), u64::MAX);
        assert_eq!(flags(), before, "{kind}");
    }
}

#[test]
fn source_is_never_modified() {
    for dir in test_dirs() {
        let bytes = noise(300_000, 10);
        let (source, from) = dir.file("source", &bytes);
        source.set_len(4 << 20).unwrap();
        let before = source.metadata().unwrap();
        for kind in EngineKind::ALL {
            let (target, to) = dir.file("target", b"");
            // The whole file including the hole, which a mapping on tmpfs would fill.
            let read_only = std::fs::File::open(&from).unwrap();
            let ends = Ends::new((&read_only, &from), (&target, &to)).unwrap();
            finish(kind, &small(), &ends, &mut whole(4 << 20), u64::MAX);
            let after = source.metadata().unwrap();
            assert_eq!(
                (after.blocks(), after.len()),
                (before.blocks(), before.len()),
                "{kind} on {}",
                dir.name
            );
            assert_eq!(
                (after.mtime_nsec(), after.ctime_nsec()),
                (before.mtime_nsec(), before.ctime_nsec())
            );
        }
    }
}

#[test]
fn span_beyond_32_bits_is_copied() {
    for dir in test_dirs() {
        let bytes = noise(100_000, 3);
        for at in [0x7fff_f000 - 50_000, (1u64 << 32) - 4096, (5u64 << 30) + 1] {
            let (source, from) = dir.file("source", b"");
            source.write_all_at(&bytes, at).unwrap();
            for kind in EngineKind::ALL {
                let (target, to) = dir.file("target", b"");
                target.set_len(at + bytes.len() as u64).unwrap();
                let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
                let mut work = Work::new([Span::new(at, at + bytes.len() as u64)]);
                finish(kind, &small(), &ends, &mut work, u64::MAX);
                let mut found = vec![0; bytes.len()];
                target.read_exact_at(&mut found, at).unwrap();
                assert_same(&format!("{kind} on {}, at {at}", dir.name), &found, &bytes);
            }
        }
    }
}

#[test]
fn span_longer_than_one_call_is_copied_completely() {
    let Some(dir) = memory() else { return };
    let size_bytes = 0x7fff_f000u64 + (1 << 20) + 5;
    let free = rustix::fs::statvfs(dir.path()).unwrap();
    if free.f_bavail * free.f_frsize < 2 * size_bytes {
        return skip("less than 4 GiB of memory in /dev/shm").unwrap_or_default();
    }
    let (source, from) = dir.file("source", b"begin");
    source.write_all_at(b"end", size_bytes - 3).unwrap();
    for kind in [EngineKind::CopyFileRange, EngineKind::Sendfile] {
        let (target, to) = dir.file("target", b"");
        let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
        let meter = Meter::default();
        let mut work = Work::new([Span::new(0, size_bytes)]);
        attempt(kind, &small(), &ends, &mut work, &meter, u64::MAX).unwrap().unwrap();
        let (mut begin, mut end) = ([0; 5], [0; 3]);
        target.read_exact_at(&mut begin, 0).unwrap();
        target.read_exact_at(&mut end, size_bytes - 3).unwrap();
        assert_eq!(
            (&begin, &end, target.metadata().unwrap().len()),
            (b"begin", b"end", size_bytes),
            "{kind}"
        );
        assert!(meter.calls() >= 2, "{kind}");
    }
}

#[test]
fn appending_target_is_refused_or_copied_correctly() {
    let dir = disk();
    let bytes = noise(200_000, 4);
    let (source, from) = dir.file("source", &bytes);
    for kind in EngineKind::ALL {
        let (_, to) = dir.file("target", b"before");
        let target = std::fs::OpenOptions::new().append(true).open(&to).unwrap();
        let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
        finish(kind, &small(), &ends, &mut whole(bytes.len()), 50_000);
        assert_same(kind.name(), &contents(&to), &[b"before", &bytes[..]].concat());
    }
}

#[test]
fn generated_files_are_copied_completely() {
    let dir = disk();
    for path in [
        "/proc/version",
        "/proc/filesystems",
        "/proc/kallsyms",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ] {
        let Ok(expected) = std::fs::read(path) else { continue };
        for kind in EngineKind::ALL {
            let source = std::fs::File::open(path).unwrap();
            let (target, to) = dir.file("target", b"");
            let ends = Ends::new((&source, path.as_ref()), (&target, &to)).unwrap();
            finish(kind, &Tuning::default(), &ends, &mut Work::open(0), u64::MAX);
            assert_same(&format!("{kind} of {path}"), &contents(&to), &expected);
        }
    }
}

/// Generates ascending spans within `bytes`.
fn spans(bytes: u64) -> impl Strategy<Value = Vec<Span>> {
    // Half of the edges are block boundaries, because some engines move only whole blocks.
    let edge = prop_oneof![0..bytes, (0..bytes / 4096).prop_map(|block| block * 4096)];
    prop::collection::vec(edge, 0..12).prop_map(|mut edges| {
        edges.sort_unstable();
        edges.chunks_exact(2).map(|pair| Span::new(pair[0], pair[1])).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn only_the_requested_spans_arrive(spans in spans(600_000), step_bytes in 1u64..300_000, seed: u64, lanes in 1usize..4) {
        let bytes = noise(600_000, seed);
        let before = noise(650_000, !seed);
        let mut expected = before.clone();
        for span in &spans {
            let part = span.begin as usize..span.end as usize;
            expected[part.clone()].copy_from_slice(&bytes[part]);
        }
        for dir in test_dirs() {
            let (source, from) = dir.file("source", &bytes);
            for kind in EngineKind::ALL {
                let (target, to) = dir.file("target", &before);
                let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
                let tuning = Tuning { lanes, ..small() };
                finish(kind, &tuning, &ends, &mut Work::new(spans.clone()), step_bytes.max(600_000 / 50));
                assert_same(&format!("{kind} on {}", dir.name), &contents(&to), &expected);
            }
        }
    }
}
