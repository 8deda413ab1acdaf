//! File systems that share extents, made in image files where this user may.

use std::os::unix::fs::FileExt;

use evermap_transfer::engines::{EngineKind, Tuning, make};
use evermap_transfer::{Ends, Meter, Span, Work};

use super::common::*;

/// Begins and ends.
type Pairs<'a> = &'a [(u64, u64)];

#[test]
fn every_engine_on_every_file_system() {
    for file_system in ["xfs", "btrfs", "ext4"] {
        let Some(place) = made(file_system, 400) else { continue };
        let bytes = noise((3 << 20) + 1234, 31);
        let (source, from) = place.file("source", &bytes);
        let other = disk();
        let (far_source, far_from) = other.file("source", &bytes);
        for kind in EngineKind::ALL {
            for (source, from) in [(&source, &from), (&far_source, &far_from)] {
                let (target, to) = place.file("target", b"");
                let ends = Ends::new((source, from), (&target, &to)).unwrap();
                finish(kind, &small(), &ends, &mut whole(bytes.len()), 1_000_000);
                assert_same(&format!("{kind} on {file_system}"), &contents(&to), &bytes);
            }
        }
    }
}

#[test]
fn reflink_shares_whole_blocks_and_the_last_one_of_the_source() {
    for file_system in ["xfs", "btrfs"] {
        let Some(place) = made(file_system, 400) else { continue };
        let bytes = noise((1 << 20) + 1234, 32);
        let (source, from) = place.file("source", &bytes);
        let size = bytes.len() as u64;
        let cases: [(Pairs<'_>, Pairs<'_>); 5] = [
            (&[(0, size)], &[]),
            (&[(8192, size)], &[]),
            // Up to the last whole block; the rest is for another engine.
            (&[(0, 10_000)], &[(8192, 10_000)]),
            (&[(4096, 8192), (65_536, size)], &[]),
            (&[(100, 9000)], &[(100, 9000)]),
        ];
        for (due, left) in cases {
            let spans = |pairs: Pairs<'_>| {
                Work::new(pairs.iter().map(|(begin, end)| Span::new(*begin, *end)))
            };
            let (target, to) = place.file("target", b"");
            let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
            let mut work = spans(due);
            let outcome =
                attempt(EngineKind::Reflink, &small(), &ends, &mut work, &Meter::default(), 1);
            let outcome = outcome.unwrap_or_else(|| panic!("{file_system} shares extents"));
            assert_eq!(outcome.is_ok(), left.is_empty(), "{file_system} {due:?}: {outcome:?}");
            assert_eq!(work, spans(left), "{file_system} {due:?}");
            let (mut found, mut expected) = (contents(&to), vec![0; bytes.len()]);
            found.resize(bytes.len(), 0);
            for (begin, end) in due.iter().map(|(begin, end)| (*begin as usize, *end as usize)) {
                let end = left.first().map_or(end, |left| end.min(left.0 as usize)).max(begin);
                expected[begin..end].copy_from_slice(&bytes[begin..end]);
            }
            assert_same(&format!("{file_system} {due:?}"), &found, &expected);
        }
        // An unaligned end within a target that goes on behind it.
        let (target, to) = place.file("target", &vec![7; 2 << 20]);
        let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
        let mut work = whole(bytes.len());
        finish(EngineKind::Reflink, &small(), &ends, &mut work, u64::MAX);
        let mut expected = vec![7; 2 << 20];
        expected[..bytes.len()].copy_from_slice(&bytes);
        assert_same(file_system, &contents(&to), &expected);
    }
}

#[test]
fn a_sparse_file_of_many_gigabytes_is_shared_at_once() {
    for file_system in ["xfs", "btrfs"] {
        let Some(place) = made(file_system, 400) else { continue };
        let (source, from) = place.file("source", b"begin");
        let size = (40u64 << 30) + 77;
        source.write_all_at(b"end", size - 3).unwrap();
        for kind in [EngineKind::Reflink, EngineKind::CopyFileRange] {
            let (target, to) = place.file("target", b"");
            let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
            let mut work = Work::new([Span::new(0, size)]);
            attempt(kind, &small(), &ends, &mut work, &Meter::default(), u64::MAX)
                .unwrap()
                .unwrap();
            let mut end = [0; 3];
            target.read_exact_at(&mut end, size - 3).unwrap();
            assert_eq!(
                (&end, target.metadata().unwrap().len()),
                (b"end", size),
                "{kind} on {file_system}"
            );
        }
    }
}

#[test]
fn btrfs_takes_direct_writes_only_without_checksums() {
    let Some(place) = made("btrfs", 400) else { return };
    let bytes = noise(1 << 20, 33);
    let sources = disk();
    let (source, from) = sources.file("source", &bytes);
    for kind in [EngineKind::UringDirect, EngineKind::MmapDirect] {
        let (target, to) = place.file("target", b"");
        let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
        if ends.target.direct().is_none() {
            return skip("btrfs of this kernel does not say what direct I/O asks")
                .unwrap_or_default();
        }
        assert!(make(kind, &Tuning::default()).probe(&ends).is_err(), "{kind}");
        target.set_len(0).unwrap();
        rustix::fs::ioctl_setflags(&target, rustix::fs::IFlags::NOCOW).unwrap();
        make(kind, &Tuning::default()).probe(&ends).unwrap();
        finish(kind, &small(), &ends, &mut whole(bytes.len()), u64::MAX);
        assert_same(kind.name(), &contents(&to), &bytes);
    }
}
