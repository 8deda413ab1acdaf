//! Tests as a user without rights: a lane applies what it can and reports the rest.

use evermap_lane::Lane;

use crate::common::*;

#[test]
fn a_lane_without_rights_applies_what_it_can_and_names_the_rest() {
    if !is_root() {
        return skip("only root can become another user");
    }
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (path, _) = make_file(folder.path(), 1_000_000);
    child("rights::child_without_rights").with("CLIP", path).by_nobody().succeeds();
}

#[test]
#[ignore = "started by another test"]
fn child_without_rights() {
    if !is_started() {
        return;
    }
    let limit_bytes = 4 << 20;
    let limit = rustix::process::Rlimit { current: Some(limit_bytes), maximum: Some(limit_bytes) };
    rustix::process::setrlimit(rustix::process::Resource::Memlock, limit).unwrap();
    let state = state();
    let clip = argument("CLIP");
    let contents = std::fs::read(&clip).unwrap();
    for mode in ["map", "nowait", "uring", "blocking"] {
        let text = format!("[app]\nperiod_us = 5000\n[io]\nmode = \"{mode}\"");
        let mut lane = Lane::enter_in(&policy(&text), &state.directory).unwrap();
        let said = missing(&lane);
        assert!(said.contains("SCHED_FIFO") && said.contains("CAP_SYS_NICE"), "{said}");
        assert!(said.contains("all memory") && said.contains("ulimit -l"), "{said}");
        assert_eq!(of_thread("Cpus_allowed_list:"), lane.core().unwrap().to_string(), "pinned");
        assert_eq!(rustix::thread::current_timer_slack().unwrap(), 1);
        let mut file = lane.open(&clip).unwrap();
        for at in (0..contents.len()).step_by(100_000) {
            let frame = lane.frame().unwrap().unwrap();
            let bytes = frame.read(&mut file, 100_000).unwrap();
            assert!(bytes == &contents[at..at + 100_000], "{mode} at {at}");
        }
        drop(file);
        let report = lane.leave();
        assert_eq!(report.frames, 10, "{mode}");
        let reads = report.reads;
        let counts =
            [reads.mapped, reads.ahead + reads.cached + reads.waited, reads.polled + reads.slept];
        assert_eq!(counts.iter().sum::<u64>() + reads.blocked, 10, "{mode}: {reads:?}");
    }
}

#[test]
fn the_read_ahead_ring_respects_the_limit_of_locked_memory() {
    if !is_root() {
        return skip("only root can become another user");
    }
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (path, _) = make_file(folder.path(), 12 << 20);
    child("rights::child_with_little_to_lock").with("CLIP", path).by_nobody().succeeds();
}

#[test]
#[ignore = "started by another test"]
fn child_with_little_to_lock() {
    if !is_started() {
        return;
    }
    let limit_bytes = 4 << 20;
    let limit = rustix::process::Rlimit { current: Some(limit_bytes), maximum: Some(limit_bytes) };
    rustix::process::setrlimit(rustix::process::Resource::Memlock, limit).unwrap();
    let state = state();
    let text = "[app]\nperiod_us = 5000\n[io]\nmode = \"nowait\"";
    let mut lane = Lane::enter_in(&policy(text), &state.directory).unwrap();
    let mut file = lane.open(argument("CLIP")).unwrap();
    let said = missing(&lane);
    assert!(said.contains("locked read-ahead ring"), "{said}");
    let locked: u64 = of_thread("VmLck:").strip_suffix(" kB").unwrap().parse().unwrap();
    assert!((1..=4 << 10).contains(&locked), "{locked} KiB");
    let frame = lane.frame().unwrap().unwrap();
    assert_eq!(frame.read(&mut file, 100_000).unwrap().len(), 100_000);
}
