//! Transferred files: contents, holes, mode, times, names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::time::{Duration, UNIX_EPOCH};

use evermap_transfer::engines::EngineKind;
use evermap_transfer::net::{Receive, Send};

use crate::common::{TestDir, allocated_bytes, bytes, ok, pairs, tcp_pair, transfer};

const TCP: &str = "127.0.0.1:0";

#[test]
fn files_of_every_size_arrive_over_any_number_of_connections() {
    let dir = TestDir::new();
    let receive = Receive::new(dir.inbox());
    for size in [0, 1, 4095, 4097, 1 << 20, (9 << 20) + 17] {
        let contents = bytes(size);
        let file = dir.file("file", &contents);
        for connections in 1..=4 {
            let send = Send::new(&file).connections(connections).verify(size % 2 == 1);
            for address in [TCP.to_string(), format!("unix:{}", dir.path("socket").display())] {
                let (sent, received) = ok(&send, &receive, &address);
                assert_eq!(std::fs::read(dir.path("inbox/file")).unwrap(), contents);
                assert!(sent.published && sent.size_bytes == size as u64, "{sent:?}");
                assert_eq!((sent.verified, received.verified), (size % 2 == 1, size % 2 == 1));
                assert_eq!(received.path, Some(dir.path("inbox/file")));
                assert_eq!(sent.traffic.bytes, size as u64);
                for traffic in [&sent.traffic, &received.traffic] {
                    assert_eq!(traffic.connections.len(), usize::from(connections));
                    assert_eq!(
                        traffic.connections.iter().map(|of| of.bytes).sum::<u64>(),
                        size as u64
                    );
                }
            }
        }
    }
    assert_eq!(dir.received(), ["file"]);
}

#[test]
fn several_connections_share_a_large_file() {
    let dir = TestDir::new();
    let file = dir.file("file", bytes(24 << 20));
    let (sent, received) = ok(&Send::new(&file).connections(2), &Receive::new(dir.inbox()), TCP);
    for traffic in [sent.traffic, received.traffic] {
        assert!(traffic.connections.iter().map(|of| of.spans).sum::<u64>() >= 8, "{traffic:?}");
        assert_eq!(traffic.engine(), Some(EngineKind::Splice));
        assert!(traffic.calls > 16, "{traffic:?}");
    }
}

#[test]
fn holes_are_preserved_and_not_transferred() {
    let dir = TestDir::new();
    let file = std::fs::File::create(dir.path("sparse")).unwrap();
    let size = (5u64 << 30) + 123;
    file.set_len(size).unwrap();
    for at in [0, 1 << 30, (4 << 30) + 8192, size - 1] {
        file.write_all_at(b"data", at).unwrap();
    }
    let size = std::fs::metadata(dir.path("sparse")).unwrap().len();
    for connections in [1, 3] {
        let send = Send::new(dir.path("sparse")).connections(connections).verify(true);
        let (sent, received) = ok(&send, &Receive::new(dir.inbox()), TCP);
        let copy = std::fs::File::open(dir.path("inbox/sparse")).unwrap();
        assert_eq!(copy.metadata().unwrap().len(), size);
        assert!(sent.traffic.bytes < 1 << 20 && sent.size_bytes == size, "{sent:?}");
        assert_eq!(received.size_bytes, size);
        assert!(allocated_bytes(&dir.path("inbox/sparse")) < 1 << 20);
        for at in [0, 1 << 30, (4 << 30) + 8192, size - 4] {
            let mut found = [0; 4];
            copy.read_exact_at(&mut found, at).unwrap();
            assert_eq!(&found, b"data", "at {at}");
        }
    }
}

#[test]
fn file_without_data_arrives_as_a_hole() {
    let dir = TestDir::new();
    std::fs::File::create(dir.path("hole")).unwrap().set_len(1 << 40).unwrap();
    let (sent, _) = ok(&Send::new(dir.path("hole")).verify(true), &Receive::new(dir.inbox()), TCP);
    assert_eq!(sent.traffic.bytes, 0);
    assert_eq!(std::fs::metadata(dir.path("inbox/hole")).unwrap().len(), 1 << 40);
    assert_eq!(allocated_bytes(&dir.path("inbox/hole")), 0);
}

#[test]
fn times_and_the_nine_permission_bits_are_preserved() {
    let dir = TestDir::new();
    let path = dir.file("file", "text");
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    for (mode, kept) in [(0o640, 0o640), (0o7755, 0o755), (0o400, 0o400)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let modified = UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
        file.set_times(std::fs::FileTimes::new().set_modified(modified).set_accessed(modified))
            .unwrap();
        let (_, received) = ok(&Send::new(&path), &Receive::new(dir.inbox()), TCP);
        assert!(received.not_kept.is_empty());
        let copy = std::fs::metadata(dir.path("inbox/file")).unwrap();
        assert_eq!(copy.permissions().mode() & 0o7777, kept);
        assert_eq!(copy.modified().unwrap(), modified);
        assert_eq!((copy.atime(), copy.atime_nsec()), (1_234_567_890, 123_456_789));
    }
    // A time before 1970.
    file.set_modified(UNIX_EPOCH - Duration::from_millis(1500)).unwrap();
    ok(&Send::new(&path), &Receive::new(dir.inbox()), TCP);
    let copy = std::fs::metadata(dir.path("inbox/file")).unwrap();
    assert_eq!((copy.mtime(), copy.mtime_nsec()), (-2, 500_000_000));
}

#[test]
fn names_and_paths_may_contain_any_bytes() {
    let dir = TestDir::new();
    let name = OsStr::from_bytes(b"odd\xff name");
    let file = dir.file(name, "text");
    let folder = dir.path(OsStr::from_bytes(b"folder\xfe"));
    std::fs::create_dir(&folder).unwrap();
    let mut socket = std::ffi::OsString::from("unix:");
    socket.push(folder.join(OsStr::from_bytes(b"so\xff\ncket")));
    let address = evermap_transfer::net::Address::parse(&socket).unwrap();
    let listening = Receive::new(&folder).listen(&address).unwrap();
    let receiver = std::thread::spawn(move || listening.once());
    Send::new(&file).to(&address).unwrap();
    let received = receiver.join().unwrap().unwrap();
    assert_eq!(received.path, Some(folder.join(name)));
    // The listener removes its socket.
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn target_file_is_replaced_through_a_link() {
    let dir = TestDir::new();
    let file = dir.file("file", "new");
    let old = dir.file("old", "old");
    std::os::unix::fs::symlink("old", dir.path("link")).unwrap();
    let before = std::fs::File::open(&old).unwrap();
    ok(&Send::new(&file), &Receive::new(dir.path("link")), TCP);
    assert_eq!(std::fs::read(&old).unwrap(), b"new");
    assert!(std::fs::symlink_metadata(dir.path("link")).unwrap().is_symlink());
    // A program that had it open still reads the old contents.
    let mut text = [0; 3];
    before.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"old");
    // In a directory, links with the sender's file name are not followed.
    std::fs::write(dir.path("secret"), "kept").unwrap();
    std::os::unix::fs::symlink("../secret", dir.path("inbox/file")).unwrap();
    ok(&Send::new(&file), &Receive::new(dir.inbox()), TCP);
    assert_eq!(std::fs::read(dir.path("secret")).unwrap(), b"kept");
    assert!(std::fs::symlink_metadata(dir.path("inbox/file")).unwrap().is_file());
}

#[test]
fn every_engine_sends_or_gives_a_reason() {
    let dir = TestDir::new();
    let contents = bytes((3 << 20) + 5);
    let file = dir.file("file", &contents);
    for engine in EngineKind::ALL {
        for (_, here, there) in pairs() {
            let receive = Receive::new(dir.inbox());
            let receiver = std::thread::spawn(move || receive.over(there));
            let sent = Send::new(&file).engine(engine).over(here);
            let received = receiver.join().unwrap();
            match sent {
                Ok(_) => {
                    received.unwrap();
                    assert_eq!(
                        std::fs::read(dir.path("inbox/file")).unwrap(),
                        contents,
                        "{engine}"
                    );
                    std::fs::remove_file(dir.path("inbox/file")).unwrap();
                }
                Err(error) => {
                    assert!(
                        matches!(error, evermap_transfer::Error::Refused { .. }),
                        "{engine}: {error:?}"
                    );
                    assert!(received.is_err() && dir.received().is_empty(), "{engine}");
                    let always = [EngineKind::ReadWrite, EngineKind::Splice, EngineKind::DualPipe];
                    assert!(!always.contains(&engine), "{engine}: {error}");
                }
            }
        }
    }
}

#[test]
fn receiver_may_use_read_write() {
    let dir = TestDir::new();
    let contents = bytes((2 << 20) + 5);
    let file = dir.file("file", &contents);
    let receive = Receive::new(dir.inbox()).engine(EngineKind::ReadWrite);
    let (_, received) = ok(&Send::new(&file).connections(2), &receive, TCP);
    assert_eq!(received.traffic.engine(), Some(EngineKind::ReadWrite));
    assert_eq!(std::fs::read(dir.path("inbox/file")).unwrap(), contents);
}

#[test]
fn transfers_work_over_connected_sockets() {
    let dir = TestDir::new();
    let contents = bytes(5 << 20);
    let file = dir.file("file", &contents);
    let (here, there): (Vec<_>, Vec<_>) =
        (0..3).map(|_| tcp_pair()).map(|(a, b)| (a.into(), b.into())).unzip();
    let receive = Receive::new(dir.inbox());
    let receiver = std::thread::spawn(move || receive.over_all(there));
    let sent = Send::new(&file).over_all(here).unwrap();
    assert_eq!(sent.traffic.connections.len(), 3);
    receiver.join().unwrap().unwrap();
    assert_eq!(std::fs::read(dir.path("inbox/file")).unwrap(), contents);
}

#[test]
fn discarding_receiver_reports_it() {
    let dir = TestDir::new();
    let file = dir.file("file", bytes(3 << 20));
    for address in [TCP.to_string(), format!("unix:{}", dir.path("socket").display())] {
        let receive = Receive::new("/does/not/matter").discard(true);
        let (sent, received) = ok(&Send::new(&file).connections(2), &receive, &address);
        assert!(!sent.published && received.path.is_none());
        assert_eq!(received.traffic.bytes, 3 << 20);
        let (sent, received) = transfer(&Send::new(&file).verify(true), &receive, &address);
        assert!(sent.unwrap_err().to_string().contains("cannot be verified"));
        assert!(received.is_err());
    }
    assert!(dir.received().is_empty());
}

#[test]
fn receiver_may_verify_without_a_request() {
    let dir = TestDir::new();
    let file = dir.file("file", bytes(100_000));
    let (sent, received) = ok(&Send::new(&file), &Receive::new(dir.inbox()).verify(true), TCP);
    assert!(sent.verified && received.verified);
}

#[test]
fn invalid_transfers_are_refused_before_sending() {
    let dir = TestDir::new();
    let file = dir.file("file", "text");
    let unused = "127.0.0.1:1".parse().unwrap();
    for (send, expected_text) in [
        (Send::new(&file).connections(0), "1 to 64"),
        (Send::new(&file).connections(65), "1 to 64"),
        (Send::new(&file).raw(true).connections(2), "one connection"),
        (Send::new(&file).raw(true).verify(true), "one connection"),
        (Send::new("/proc/self/status"), "raw"),
        (Send::new(dir.path("none")), "No such file"),
        (Send::new(dir.inbox()), "directory"),
    ] {
        let error = send.to(&unused).unwrap_err();
        assert!(error.to_string().contains(expected_text), "{error}");
    }
    for receive in [
        Receive::new(dir.path("no/where")),
        Receive::new(dir.path("none/")),
        Receive::new(file.join("x")),
    ] {
        assert!(receive.listen(&TCP.parse().unwrap()).is_err(), "{receive:?}");
    }
    assert!(Receive::new(&file).raw(true).verify(true).listen(&TCP.parse().unwrap()).is_err());
}

#[test]
fn progress_is_reported_up_to_the_last_byte() {
    let dir = TestDir::new();
    let file = dir.file("file", bytes(1 << 20));
    let calls = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let (of_send, of_receive) = (calls.clone(), calls.clone());
    let send = Send::new(&file)
        .on_progress(move |done, total| of_send.lock().unwrap().push((done, total)));
    let receive = Receive::new(dir.inbox())
        .on_progress(move |done, total| of_receive.lock().unwrap().push((done, total)));
    ok(&send, &receive, TCP);
    let calls = calls.lock().unwrap();
    assert_eq!(calls.iter().filter(|calls| **calls == (1 << 20, 1 << 20)).count(), 2, "{calls:?}");
}
