//! File to file.

use evermap_transfer::engines::{EngineKind, Tuning};
use evermap_transfer::{Ends, Meter, Span, Work};
use proptest::prelude::*;
use std::os::unix::fs::{FileExt, MetadataExt};

use super::common::*;

/// Around pages, and around what each engine moves at a time.
fn sizes() -> Vec<usize> {
    let edges = [4096, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20];
    let around = edges.into_iter().flat_map(|edge| [edge - 1, edge, edge + 1]);
    [0, 1, 511, 512, 513].into_iter().chain(around).collect()
}

#[test]
fn a_file_of_any_size_arrives_whole() {
    for place in places() {
        for kind in EngineKind::ALL {
            for (seed, size) in sizes().into_iter().enumerate() {
                let bytes = noise(size, seed as u64);
                let ((source, from), (target, to)) =
                    (place.file("source", &bytes), place.file("target", b""));
                let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
                finish(kind, &small(), &ends, &mut whole(size), 100_000);
                assert_same(
                    &format!("{kind} on {}, {size} bytes", place.name),
                    &contents(&to),
                    &bytes,
                );
            }
        }
    }
}

#[test]
fn a_file_longer_than_every_default_arrives_whole() {
    for place in places() {
        let bytes = noise((36 << 20) + 4097, 5);
        let (source, from) = place.file("source", &bytes);
        for kind in EngineKind::ALL {
            let (target, to) = place.file("target", b"");
            let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
            finish(kind, &Tuning::default(), &ends, &mut whole(bytes.len()), u64::MAX);
            assert_same(&format!("{kind} on {}", place.name), &contents(&to), &bytes);
        }
    }
}

#[test]
fn engines_serve_what_they_are_for() {
    use EngineKind::*;
    if !has_rings() {
        return;
    }
    for place in places() {
        let bytes = noise(300_000, 8);
        let (source, from) = place.file("source", &bytes);
        for kind in EngineKind::ALL {
            let (target, to) = place.file("target", b"");
            let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
            let meter = Meter::default();
            let mut work = whole(bytes.len());
            let served =
                matches!(attempt(kind, &small(), &ends, &mut work, &meter, 100_000), Some(Ok(())));
            // `disk` may be any file system: what it does is known of the files that are made on purpose.
            let expected = match kind {
                Reflink => continue,
                MmapDirect | UringDirect if place.name == "disk" => ends.target.direct().is_some(),
                MmapDirect | UringDirect => false,
                _ => true,
            };
            assert_eq!(served, expected, "{kind} on {}", place.name);
            if served {
                assert_eq!(meter.arrived_bytes(), bytes.len() as u64, "{kind}");
                assert!(meter.calls() > 0, "{kind}");
            }
        }
    }
}

#[test]
fn the_caller_keeps_the_flags_of_its_descriptors() {
    let place = disk();
    let bytes = noise(300_000, 9);
    let ((source, from), (target, to)) = (place.file("source", &bytes), place.file("target", b""));
    let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
    let flags = || [&source, &target].map(|file| rustix::fs::fcntl_getfl(file).unwrap());
    let before = flags();
    for kind in EngineKind::ALL {
        finish(kind, &small(), &ends, &mut whole(bytes.len()), u64::MAX);
        assert_eq!(flags(), before, "{kind}");
    }
}

#[test]
fn a_source_is_only_read() {
    for place in places() {
        let bytes = noise(300_000, 10);
        let (source, from) = place.file("source", &bytes);
        source.set_len(4 << 20).unwrap();
        let before = source.metadata().unwrap();
        for kind in EngineKind::ALL {
            let (target, to) = place.file("target", b"");
            // All of it, the hole as well: a mapping of that would fill it, on tmpfs.
            let read_only = std::fs::File::open(&from).unwrap();
            let ends = Ends::new((&read_only, &from), (&target, &to)).unwrap();
            finish(kind, &small(), &ends, &mut whole(4 << 20), u64::MAX);
            let after = source.metadata().unwrap();
            assert_eq!(
                (after.blocks(), after.len()),
                (before.blocks(), before.len()),
                "{kind} on {}",
                place.name
            );
            assert_eq!(
                (after.mtime_nsec(), after.ctime_nsec()),
                (before.mtime_nsec(), before.ctime_nsec())
            );
        }
    }
}

#[test]
fn a_span_beyond_what_32_bits_can_say() {
    for place in places() {
        let bytes = noise(100_000, 3);
        for at in [0x7fff_f000 - 50_000, (1u64 << 32) - 4096, (5u64 << 30) + 1] {
            let (source, from) = place.file("source", b"");
            source.write_all_at(&bytes, at).unwrap();
            for kind in EngineKind::ALL {
                let (target, to) = place.file("target", b"");
                target.set_len(at + bytes.len() as u64).unwrap();
                let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
                let mut work = Work::new([Span::new(at, at + bytes.len() as u64)]);
                finish(kind, &small(), &ends, &mut work, u64::MAX);
                let mut found = vec![0; bytes.len()];
                target.read_exact_at(&mut found, at).unwrap();
                assert_same(&format!("{kind} on {}, at {at}", place.name), &found, &bytes);
            }
        }
    }
}

#[test]
fn a_span_longer_than_any_call_moves_arrives_whole() {
    let Some(place) = memory() else { return };
    let size_bytes = 0x7fff_f000u64 + (1 << 20) + 5;
    let free = rustix::fs::statvfs(place.path()).unwrap();
    if free.f_bavail * free.f_frsize < 2 * size_bytes {
        return skip("less than 4 GiB of memory in /dev/shm").unwrap_or_default();
    }
    let (source, from) = place.file("source", b"begin");
    source.write_all_at(b"end", size_bytes - 3).unwrap();
    for kind in [EngineKind::CopyFileRange, EngineKind::Sendfile] {
        let (target, to) = place.file("target", b"");
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
fn a_target_that_appends_is_refused_or_served_rightly() {
    let place = disk();
    let bytes = noise(200_000, 4);
    let (source, from) = place.file("source", &bytes);
    for kind in EngineKind::ALL {
        let (_, to) = place.file("target", b"before");
        let target = std::fs::OpenOptions::new().append(true).open(&to).unwrap();
        let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
        finish(kind, &small(), &ends, &mut whole(bytes.len()), 50_000);
        assert_same(kind.name(), &contents(&to), &[b"before", &bytes[..]].concat());
    }
}

#[test]
fn contents_that_are_made_up_when_read_arrive_whole() {
    let place = disk();
    for path in [
        "/proc/version",
        "/proc/filesystems",
        "/proc/kallsyms",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ] {
        let Ok(expected) = std::fs::read(path) else { continue };
        for kind in EngineKind::ALL {
            let source = std::fs::File::open(path).unwrap();
            let (target, to) = place.file("target", b"");
            let ends = Ends::new((&source, path.as_ref()), (&target, &to)).unwrap();
            finish(kind, &Tuning::default(), &ends, &mut Work::open(0), u64::MAX);
            assert_same(&format!("{kind} of {path}"), &contents(&to), &expected);
        }
    }
}

/// Spans that ascend, within `bytes`.
fn spans(bytes: u64) -> impl Strategy<Value = Vec<Span>> {
    // Whole blocks in half of the cases: some engines move nothing else.
    let edge = prop_oneof![0..bytes, (0..bytes / 4096).prop_map(|block| block * 4096)];
    prop::collection::vec(edge, 0..12).prop_map(|mut edges| {
        edges.sort_unstable();
        edges.chunks_exact(2).map(|pair| Span::new(pair[0], pair[1])).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn only_what_is_due_arrives(spans in spans(600_000), step_bytes in 1u64..300_000, seed: u64, lanes in 1usize..4) {
        let bytes = noise(600_000, seed);
        let before = noise(650_000, !seed);
        let mut expected = before.clone();
        for span in &spans {
            let part = span.begin as usize..span.end as usize;
            expected[part.clone()].copy_from_slice(&bytes[part]);
        }
        for place in places() {
            let (source, from) = place.file("source", &bytes);
            for kind in EngineKind::ALL {
                let (target, to) = place.file("target", &before);
                let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
                let tuning = Tuning { lanes, ..small() };
                finish(kind, &tuning, &ends, &mut Work::new(spans.clone()), step_bytes.max(600_000 / 50));
                assert_same(&format!("{kind} on {}", place.name), &contents(&to), &expected);
            }
        }
    }
}
