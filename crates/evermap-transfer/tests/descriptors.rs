//! Guarantees of moving between open descriptors: files, pipes, sockets.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evermap_transfer::engines::{EngineKind, Tuning};
use evermap_transfer::{Durability, Error, Move, Reflink, Report, Result, Span};

fn file() -> File {
    tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn file_of(content: &[u8]) -> File {
    let file = file();
    file.write_all_at(content, 0).unwrap();
    file
}

/// Returns bytes that differ at every position.
fn bytes(length: usize) -> Vec<u8> {
    (0..length.div_ceil(8) as u64)
        .flat_map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .take(length)
        .collect()
}

fn content(file: &File) -> Vec<u8> {
    let mut content = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut content, 0).unwrap();
    content
}

/// Returns the bytes read from a stream while `body` moves into it.
fn read_while(mut reader: impl Read + Send, body: impl FnOnce() -> Result<Report>) -> Vec<u8> {
    std::thread::scope(|scope| {
        let read = scope.spawn(move || {
            let mut content = Vec::new();
            reader.read_to_end(&mut content).unwrap();
            content
        });
        body().unwrap();
        read.join().unwrap()
    })
}

#[test]
fn every_engine_moves_spans_without_changing_other_bytes() {
    let content_of_source = bytes(3 << 20);
    let source = file_of(&content_of_source);
    let spans =
        [Span::new(10, 5000), Span::new(1 << 20, (2 << 20) + 1), Span::new((3 << 20) - 1, 3 << 20)];
    let mut expected = vec![7; 4 << 20];
    for span in spans {
        let range = span.begin as usize..span.end as usize;
        expected[range.clone()].copy_from_slice(&content_of_source[range]);
    }
    for engine in EngineKind::ALL {
        let target = file_of(&vec![7; 4 << 20]);
        match Move::new(&source, &target).spans(spans).engine(engine).run() {
            Ok(report) => {
                assert_eq!(report.size_bytes, spans.iter().map(Span::bytes).sum::<u64>());
                assert!(content(&target) == expected, "{engine}");
            }
            Err(Error::Refused { .. }) => assert_ne!(engine, EngineKind::ReadWrite),
            Err(error) => panic!("{engine}: {error}"),
        }
    }
}

#[test]
fn positions_of_descriptors_are_ignored_and_unchanged() {
    let (mut source, mut target) = (file_of(&bytes(300_000)), file());
    source.seek(SeekFrom::Start(1234)).unwrap();
    target.seek(SeekFrom::Start(77)).unwrap();
    for sparse in [false, true] {
        Move::new(&source, &target).sparse(sparse).run().unwrap();
        assert!(content(&target) == bytes(300_000));
        assert_eq!(source.stream_position().unwrap(), 1234);
        assert_eq!(target.stream_position().unwrap(), 77);
    }
}

#[test]
fn mapping_a_source_on_tmpfs_keeps_its_position() {
    let Ok(mut source) = tempfile::tempfile_in("/dev/shm") else {
        return eprintln!("SKIPPED: no /dev/shm");
    };
    source.write_all_at(&bytes(300_000), 0).unwrap();
    source.seek(SeekFrom::Start(1234)).unwrap();
    for engine in [EngineKind::MmapWrite, EngineKind::MmapDirect] {
        let target = file();
        match Move::new(&source, &target).engines([engine]).run() {
            Err(Error::Refused { .. }) => {}
            moved => assert_eq!(moved.unwrap().data_bytes, 300_000),
        }
        assert_eq!(source.stream_position().unwrap(), 1234, "{engine}");
    }
}

#[test]
fn sparse_move_skips_holes_and_sets_the_length() {
    let source = file();
    source.set_len(64 << 20).unwrap();
    source.write_all_at(&bytes(8192), 20 << 20).unwrap();
    let sparse = file();
    let report = Move::new(&source, &sparse).sparse(true).reflink(Reflink::Never).run().unwrap();
    assert_eq!((report.data_bytes, report.size_bytes), (8192, 64 << 20));
    assert_eq!(report.hole_bytes, (64 << 20) - 8192);
    assert!(sparse.metadata().unwrap().blocks() <= source.metadata().unwrap().blocks());
    assert!(content(&sparse) == content(&source));
    // A part of it: the target ends at the spans' end, not the source's.
    let part = file();
    let spans = [Span::new(0, (20 << 20) + 4096), Span::new(30 << 20, 31 << 20)];
    let report = Move::new(&source, &part).spans(spans).sparse(true).reflink(Reflink::Never).run();
    assert_eq!(report.unwrap().data_bytes, 4096);
    assert_eq!(part.metadata().unwrap().len(), 31 << 20);
    assert!(part.metadata().unwrap().blocks() <= source.metadata().unwrap().blocks());
}

#[test]
fn move_that_may_share_extents_copies_the_same_bytes() {
    let source = file();
    source.set_len(16 << 20).unwrap();
    source.write_all_at(&bytes(2 << 20), 1 << 20).unwrap();
    for engines in
        [&[][..], &[EngineKind::Reflink, EngineKind::CopyFileRange, EngineKind::ReadWrite]]
    {
        let target = file();
        let length = (3 << 20) - 100;
        let moved = Move::new(&source, &target).spans([Span::new(0, length)]).sparse(true);
        let report = moved.engines(engines.iter().copied()).run().unwrap();
        assert!(content(&target) == content(&source)[..length as usize], "{report:?}");
    }
}

#[test]
fn refused_engine_is_replaced_by_the_next() {
    let (source, (mut reader, writer)) = (file_of(&bytes(1 << 20)), std::io::pipe().unwrap());
    // Ranges cannot be shared or copied between a file and a pipe.
    let engines = [EngineKind::CopyFileRange, EngineKind::Splice];
    let moved = Move::new(&source, &writer).engines(engines);
    let got = std::thread::scope(|scope| {
        let read = scope.spawn(|| {
            let mut got = vec![0; 1 << 20];
            reader.read_exact(&mut got).unwrap();
            got
        });
        let report = moved.run().unwrap();
        assert_eq!(report.moved_bytes(), 1 << 20);
        assert_eq!(report.why, "requested by name");
        read.join().unwrap()
    });
    assert!(got == bytes(1 << 20));
}

#[test]
fn every_supporting_engine_moves_files_into_pipes_and_sockets() {
    let source = file_of(&bytes((2 << 20) + 3));
    let span = Span::new(5, (2 << 20) + 1);
    let expected = &bytes((2 << 20) + 3)[5..(2 << 20) + 1];
    for engine in [None].into_iter().chain(EngineKind::ALL.map(Some)) {
        let moved = |target: &dyn AsFd| {
            let target = target.as_fd();
            let moved = Move::new(&source, &target).spans([span]);
            let result = match engine {
                Some(engine) => moved.engine(engine).run(),
                None => moved.run(),
            };
            match result {
                Err(Error::Refused { .. }) if engine.is_some() => Ok(Report::default()),
                other => other,
            }
        };
        let (reader, writer) = std::io::pipe().unwrap();
        let got = read_while(reader, || moved(&writer).inspect(|_| drop(writer)));
        assert!(got.is_empty() && engine.is_some() || got == expected, "{engine:?}, pipe");
        let (here, there) = UnixStream::pair().unwrap();
        let got = read_while(there, || moved(&here).inspect(|_| drop(here)));
        assert!(got.is_empty() && engine.is_some() || got == expected, "{engine:?}, socket");
        let (here, there) = tcp_pair();
        let got = read_while(there, || moved(&here).inspect(|_| drop(here)));
        assert!(got.is_empty() && engine.is_some() || got == expected, "{engine:?}, TCP");
    }
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (here, listener.accept().unwrap().0)
}

/// Full segments are enabled only during the move: the last bytes are sent at once, and the
/// caller's setting is unchanged.
#[test]
fn connection_settings_are_restored() {
    use rustix::net::sockopt::{set_tcp_cork, tcp_cork};
    let source = file_of(&bytes(100_000));
    for corked in [false, true] {
        let (here, mut there) = tcp_pair();
        set_tcp_cork(&here, corked).unwrap();
        Move::new(&source, &here).run().unwrap();
        assert_eq!(tcp_cork(&here), Ok(corked));
        if !corked {
            // The connection stays open, so only the move itself can have sent them.
            let mut got = vec![0; 100_000];
            there.read_exact(&mut got).unwrap();
            assert!(got == bytes(100_000));
        }
    }
}

#[test]
fn streams_are_stored_at_the_spans_offset_up_to_their_end() {
    for into_socket in [false, true] {
        let target = file_of(b"head");
        let write = |mut writer: Box<dyn Write + Send>| writer.write_all(&bytes(500_000)).unwrap();
        let spans = [Span::new(4, Span::OPEN)];
        std::thread::scope(|scope| match into_socket {
            false => {
                let (reader, writer) = std::io::pipe().unwrap();
                scope.spawn(move || write(Box::new(writer)));
                Move::new(&reader, &target)
                    .spans(spans)
                    .durability(Durability::Data)
                    .run()
                    .unwrap();
            }
            true => {
                let (here, there) = UnixStream::pair().unwrap();
                scope.spawn(move || write(Box::new(there)));
                Move::new(&here, &target).spans(spans).run().unwrap();
            }
        });
        let got = content(&target);
        assert!(got[..4] == *b"head" && got[4..] == bytes(500_000), "{into_socket}");
    }
}

#[test]
fn stream_is_read_only_for_the_bytes_of_the_spans() {
    let ((mut reader, mut writer), target) = (std::io::pipe().unwrap(), file());
    writer.write_all(b"bytes to move; bytes to keep").unwrap();
    drop(writer);
    Move::new(&reader, &target).spans([Span::new(0, 13)]).run().unwrap();
    assert_eq!(content(&target), b"bytes to move");
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "; bytes to keep");
}

#[test]
fn source_that_ends_within_a_span_is_an_error_after_its_bytes_arrive() {
    let (source, target) = (file_of(&bytes(10_000)), file());
    let moved =
        Move::new(&source, &target).spans([Span::new(0, 20_000)]).engine(EngineKind::ReadWrite);
    let error = moved.run().unwrap_err();
    assert!(
        matches!(&error, Error::SourceChanged { what, .. } if what.contains("10000")),
        "{error}"
    );
    assert_eq!(moved.meter().arrived_bytes(), 10_000);
    assert!(content(&target) == bytes(10_000));
}

#[test]
fn full_file_system_is_detected_before_the_first_byte() {
    // A move larger than the file system is refused at once, without filling it.
    let (Ok(source), Ok(target)) =
        (tempfile::tempfile_in("/dev/shm"), tempfile::tempfile_in("/dev/shm"))
    else {
        return eprintln!("SKIPPED: cannot create files in /dev/shm");
    };
    const TMPFS: i64 = 0x0102_1994;
    let status = rustix::fs::fstatfs(&target).unwrap();
    let size_bytes = status.f_blocks * status.f_bsize as u64;
    if status.f_type as i64 != TMPFS || size_bytes == 0 {
        return eprintln!("SKIPPED: /dev/shm has no size limit or is not a tmpfs");
    }
    source.set_len(2 * size_bytes).unwrap();
    source.write_all_at(&bytes(4096), 0).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let moved = Move::new(&source, &target).cancelled_by(Arc::clone(&stop));
    let (meter, over) = (moved.meter(), AtomicBool::new(false));
    let error = std::thread::scope(|scope| {
        // If it starts in spite of that, stop it before it fills the machine's memory.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                stop.fetch_or(meter.arrived_bytes() > 0, Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        let error = moved.run().unwrap_err();
        over.store(true, Ordering::Relaxed);
        error
    });
    assert!(
        matches!(error, Error::NoSpace { needed_bytes, .. } if needed_bytes == 2 * size_bytes),
        "{error}"
    );
    assert_eq!(moved.meter().arrived_bytes(), 0);
    // It fits without its holes.
    Move::new(&source, &target).sparse(true).run().unwrap();
    assert_eq!(target.metadata().unwrap().len(), 2 * size_bytes);
}

#[test]
fn closed_peer_is_an_error() {
    let (source, (reader, writer)) = (file_of(&bytes(1 << 20)), std::io::pipe().unwrap());
    drop(reader);
    let error = Move::new(&source, &writer).run().unwrap_err();
    let Error::Io { source, path, .. } = &error else { panic!("{error}") };
    assert_eq!(source.kind(), std::io::ErrorKind::BrokenPipe);
    assert!(path.to_string_lossy().starts_with("pipe:["), "{error}");
}

#[test]
fn cancelled_move_reports_and_counts_the_arrived_bytes() {
    let (source, target) = (file_of(&bytes(64 << 20)), file());
    let stop = Arc::new(AtomicBool::new(false));
    let moved = Move::new(&source, &target)
        .named("here", "there")
        .engine(EngineKind::ReadWrite)
        .tuning(Tuning { chunk_bytes: 4096, ..Tuning::default() })
        .cancelled_by(Arc::clone(&stop));
    let meter = moved.meter();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            while meter.arrived_bytes() < 1 << 20 {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
        });
        moved.run().unwrap_err()
    });
    assert!(
        matches!(&error, Error::Cancelled { left } if left.starts_with("there has")),
        "{error}"
    );
    let arrived = meter.arrived_bytes() as usize;
    assert!(arrived < 64 << 20);
    assert!(content(&target)[..arrived] == bytes(arrived));
}

#[test]
fn second_run_has_its_own_counts() {
    let (source, target) = (file_of(&bytes(100_000)), file());
    let moved = Move::new(&source, &target).engine(EngineKind::ReadWrite);
    let first = moved.run().unwrap();
    let second = moved.run().unwrap();
    assert_eq!((first.data_bytes, first.calls), (second.data_bytes, second.calls));
}

#[test]
fn invalid_moves_are_refused() {
    let source = file_of(b"some");
    let target = file();
    let again = source.try_clone().unwrap();
    assert!(matches!(Move::new(&source, &again).run(), Err(Error::SameFile { .. })));
    for spans in [
        vec![Span::new(0, 3), Span::new(2, 4)],
        vec![Span::new(3, 2)],
        vec![Span::new(0, Span::OPEN), Span::new(4, 5)],
        vec![Span::new(0, 1 << 63)],
    ] {
        let result = Move::new(&source, &target).spans(spans.clone()).run();
        assert!(matches!(result, Err(Error::Usage(_))), "{spans:?}: {result:?}");
    }
    assert_eq!(target.metadata().unwrap().len(), 0);
    let directory = File::open(env!("CARGO_TARGET_TMPDIR")).unwrap();
    assert!(matches!(Move::new(&directory, &target).run(), Err(Error::Io { .. })));
    let unreadable = File::options().write(true).open("/dev/null").unwrap();
    assert!(matches!(Move::new(&unreadable, &target).run(), Err(Error::Io { .. })));
}
