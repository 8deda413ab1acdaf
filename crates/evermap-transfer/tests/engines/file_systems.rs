//! File systems that share extents, created in image files if permitted.

use std::os::unix::fs::FileExt;

use evermap_transfer::engines::{EngineKind, Tuning, make};
use evermap_transfer::{Ends, Meter, Span, Work};

use super::common::*;

/// Begin and end of spans.
type Pairs<'a> = &'a [(u64, u64)];

#[test]
fn every_engine_works_on_every_file_system() {
    for file_system in ["xfs", "btrfs", "ext4"] {
        let Some(dir) = mounted(file_system, 400) else { continue };
        let bytes = noise((3 << 20) + 1234, 31);
        let (source, from) = dir.file("source", &bytes);
        let other = disk();
        let (far_source, far_from) = other.file("source", &bytes);
        for kind in EngineKind::ALL {
            for (source, from) in [(&source, &from), (&far_source, &far_from)] {
                let (target, to) = dir.file("target", b"");
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
        let Some(dir) = mounted(file_system, 400) else { continue };
        let bytes = noise((1 << 20) + 1234, 32);
        let (source, from) = dir.file("source", &bytes);
        let size = bytes.len() as u64;
        let cases: [(Pairs<'_>, Pairs<'_>); 5] = [
            (&[(0, size)], &[]),
            (&[(8192, size)], &[]),
            // Shares up to the last whole block and leaves the rest to another engine.
            (&[(0, 10_000)], &[(8192, 10_000)]),
            (&[(4096, 8192), (65_536, size)], &[]),
            (&[(100, 9000)], &[(100, 9000)]),
        ];
        for (remaining, left) in cases {
            let spans = |pairs: Pairs<'_>| {
                Work::new(pairs.iter().map(|(begin, end)| Span::new(*begin, *end)))
            };
            let (target, to) = dir.file("target", b"");
            let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
            let mut work = spans(remaining);
            let outcome =
                attempt(EngineKind::Reflink, &small(), &ends, &mut work, &Meter::default(), 1);
            let outcome =
                outcome.unwrap_or_else(|| panic!("{file_system} refused to share extents"));
            assert_eq!(
                outcome.is_ok(),
                left.is_empty(),
                "{file_system} {remaining:?}: {outcome:?}"
            );
            assert_eq!(work, spans(left), "{file_system} {remaining:?}");
            let (mut found, mut expected) = (contents(&to), vec![0; bytes.len()]);
            found.resize(bytes.len(), 0);
            for (begin, end) in
                remaining.iter().map(|(begin, end)| (*begin as usize, *end as usize))
            {
                let end = left.first().map_or(end, |left| end.min(left.0 as usize)).max(begin);
                expected[begin..end].copy_from_slice(&bytes[begin..end]);
            }
            assert_same(&format!("{file_system} {remaining:?}"), &found, &expected);
        }
        // An unaligned end within a target that continues after it.
        let (target, to) = dir.file("target", &vec![7; 2 << 20]);
        let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
        let mut work = whole(bytes.len());
        finish(EngineKind::Reflink, &small(), &ends, &mut work, u64::MAX);
        let mut expected = vec![7; 2 << 20];
        expected[..bytes.len()].copy_from_slice(&bytes);
        assert_same(file_system, &contents(&to), &expected);
    }
}

#[test]
fn large_sparse_file_is_shared() {
    for file_system in ["xfs", "btrfs"] {
        let Some(dir) = mounted(file_system, 400) else { continue };
        let (source, from) = dir.file("source", b"begin");
        let size = (40u64 << 30) + 77;
        source.write_all_at(b"end", size - 3).unwrap();
        for kind in [EngineKind::Reflink, EngineKind::CopyFileRange] {
            let (target, to) = dir.file("target", b"");
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
fn btrfs_accepts_direct_writes_only_without_checksums() {
    let Some(dir) = mounted("btrfs", 400) else { return };
    let bytes = noise(1 << 20, 33);
    let sources = disk();
    let (source, from) = sources.file("source", &bytes);
    for kind in [EngineKind::UringDirect, EngineKind::MmapDirect] {
        let (target, to) = dir.file("target", b"");
        let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
        if ends.target.direct().is_none() {
            return skip("this kernel's btrfs does not report its direct I/O alignment")
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
