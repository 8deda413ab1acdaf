//! State of a store after a kill at chosen moments. `kills` covers arbitrary moments.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;

use common::{LOG_REQUIRED, TestStore, argument, child, copy_store, lose_progress, object_file};
use evermap::tools::{CheckOptions, check};
use evermap::{Error, PMap, PString, PVec, Persist, Store, WriteOptions};

/// Three views of the same number that agree only in committed states.
#[derive(Persist)]
#[repr(C)]
struct State {
    number: u64,
    by_name: PMap<PString, u64>,
    list: PVec<PString>,
}

fn new_state(store: &Store) {
    let source = StateInit { number: 0, by_name: PMap::new(), list: PVec::new() };
    store.create::<State, _>("state", source).unwrap();
}

/// Changes the previous state to state `number`.
fn step(mut root: evermap::Mut<'_, State>, number: u64) -> Result<(), Error> {
    let mut state = root.fields();
    *state.number = number;
    let text = format!("number {number}");
    state.by_name.insert(text.as_str(), number)?;
    state.list.push(text.as_str())?;
    if number.is_multiple_of(3) {
        let old = format!("number {}", number / 3);
        state.by_name.remove(old.as_str());
    }
    if number.is_multiple_of(50) {
        state.list.truncate(10);
    }
    Ok(())
}

fn check_whole(state: &State) {
    let mut names: Vec<u64> = state.by_name.iter().map(|(_, n)| *n).collect();
    names.sort_unstable();
    let mut model: std::collections::BTreeSet<u64> = Default::default();
    let mut list: Vec<u64> = Vec::new();
    for n in 1..=state.number {
        model.insert(n);
        list.push(n);
        if n % 3 == 0 {
            model.remove(&(n / 3));
        }
        if n % 50 == 0 {
            list.truncate(10);
        }
    }
    assert_eq!(names, model.into_iter().collect::<Vec<_>>());
    let texts: Vec<String> = list.iter().map(|n| format!("number {n}")).collect();
    assert_eq!(state.list.len(), texts.len());
    assert!(state.list.iter().zip(&texts).all(|(a, b)| a.as_str() == b));
}

#[test]
fn a_commit_survives_a_kill_of_its_session() {
    for readers_first in [false, true] {
        let test = TestStore::new();
        new_state(&test);
        let before = object_file(&test.path());
        let before_bytes = std::fs::read(&before).unwrap();
        let mut session = test.write::<State>("state").unwrap();
        for number in 1..=5 {
            step(session.root_mut(), number).unwrap();
            session.commit().unwrap();
        }
        step(session.root_mut(), 6).unwrap();
        // A kill leaves the files completely applied. A power failure may leave the log and no
        // applied page.
        let copies = tempfile::tempdir().unwrap();
        let applied = copies.path().join("applied");
        let lagging = copies.path().join("lagging");
        copy_store(&test.path(), &applied);
        copy_store(&test.path(), &lagging);
        let file = object_file(&lagging);
        let grown = std::fs::read(&file).unwrap();
        let mut torn = before_bytes.clone();
        // Fresh memory is flushed before the commit that adds it; the flag is flushed before the
        // log.
        torn.extend_from_slice(&grown[before_bytes.len()..]);
        torn[248..252].copy_from_slice(&LOG_REQUIRED);
        std::fs::write(&file, torn).unwrap();
        drop(session);
        let (_, directory) = test.close();
        drop(directory);
        for copy in [applied, lagging] {
            let store = Store::open(&copy).unwrap();
            if readers_first {
                let state = store.read::<State>("state").unwrap();
                assert_eq!(state.number, 5);
                check_whole(&state);
            }
            let mut session = store.write::<State>("state").unwrap();
            assert_eq!(session.number, 5);
            check_whole(&session);
            step(session.root_mut(), 6).unwrap();
            session.commit().unwrap();
            session.close().unwrap();
            let state = store.read::<State>("state").unwrap();
            check_whole(&state);
            let log = object_file(&copy).with_extension("log");
            assert!(!log.exists(), "a closed object has no log");
        }
    }
}

#[test]
fn a_missing_log_is_an_error_and_nothing_is_changed() {
    let test = TestStore::new();
    new_state(&test);
    let mut session = test.write::<State>("state").unwrap();
    step(session.root_mut(), 1).unwrap();
    session.commit().unwrap();
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy");
    copy_store(&test.path(), &copy);
    drop(session);
    drop(test);
    let log = object_file(&copy).with_extension("log");
    let kept = std::fs::read(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    let store = Store::open(&copy).unwrap();
    assert!(matches!(store.read::<State>("state"), Err(Error::LogMissing { .. })));
    assert!(matches!(store.write::<State>("state"), Err(Error::LogMissing { .. })));
    std::fs::write(&log, &kept).unwrap();
    assert_eq!(store.read::<State>("state").unwrap().number, 1);
}

#[test]
fn a_log_truncated_or_damaged_anywhere_yields_an_older_commit_or_an_error() {
    let test = TestStore::new();
    new_state(&test);
    // Three commits that need no growth, so the file before them is what a power failure may leave
    // if no page was written back.
    let copies = tempfile::tempdir().unwrap();
    let (first, mut lagging, file) = (1..)
        .find_map(|attempt| {
            let before = std::fs::read(object_file(&test.path())).unwrap();
            // No page is retained: each commit is applied at once.
            let options = WriteOptions::new().hot_bytes_max(0);
            let mut session = test.write_with::<State>("state", &options).unwrap();
            let first = session.number;
            for number in first + 1..=first + 3 {
                step(session.root_mut(), number).unwrap();
                session.commit().unwrap();
            }
            let copy = copies.path().join(attempt.to_string());
            copy_store(&test.path(), &copy);
            session.close().unwrap();
            let file = object_file(&copy);
            let fits = file.metadata().unwrap().len() == before.len() as u64;
            fits.then_some((first, before, file))
        })
        .unwrap();
    drop(test);
    let copy = file.parent().unwrap().parent().unwrap().to_path_buf();
    let log = file.with_extension("log");
    let applied = std::fs::read(&file).unwrap();
    lagging[248..252].copy_from_slice(&LOG_REQUIRED);
    let mut whole = std::fs::read(&log).unwrap();
    lose_progress(&mut whole);
    let used = whole.iter().rposition(|b| *b != 0).unwrap() + 1;
    for (object, allowed) in [(&lagging, &[0, 1, 2, 3][..]), (&applied, &[3])] {
        let mut seen = std::collections::BTreeSet::new();
        for cut in (0..used).step_by(97).chain([used - 1, used]) {
            for damage in [false, true] {
                let mut bytes = whole.clone();
                match (damage, bytes.get_mut(cut)) {
                    (true, Some(byte)) => *byte ^= 0x40,
                    (true, None) => continue,
                    (false, _) => bytes[cut..].fill(0),
                }
                std::fs::write(&file, object).unwrap();
                std::fs::write(&log, &bytes).unwrap();
                let store = Store::open(&copy).unwrap();
                match store.read::<State>("state") {
                    Ok(state) => {
                        check_whole(&state);
                        seen.insert(state.number - first);
                    }
                    Err(Error::Damaged { .. } | Error::NewerFormat { .. }) => {}
                    Err(other) => panic!("cut {cut}: {other}"),
                }
            }
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), allowed);
    }
}

/// A reset writes a header; the records of the previous use stay after it.
#[test]
fn a_reused_log_distinguishes_damage_from_old_records() {
    let test = TestStore::new();
    new_state(&test);
    let mut session = test.write::<State>("state").unwrap();
    for number in 1..=6 {
        step(session.root_mut(), number).unwrap();
        session.commit().unwrap();
    }
    assert!(session.checkpoint().unwrap());
    let copies = tempfile::tempdir().unwrap();
    let (emptied, used) = (copies.path().join("emptied"), copies.path().join("used"));
    copy_store(&test.path(), &emptied);
    for number in 7..=9 {
        step(session.root_mut(), number).unwrap();
        session.commit().unwrap();
    }
    copy_store(&test.path(), &used);
    drop(session);
    drop(test);
    let number_in = |path: &Path| match Store::open(path).unwrap().read::<State>("state") {
        Ok(state) => {
            check_whole(&state);
            Some(state.number)
        }
        Err(Error::Damaged { .. }) => None,
        Err(other) => panic!("{other}"),
    };
    assert_eq!((number_in(&emptied), number_in(&used)), (Some(6), Some(9)));
    let log_of = |path: &Path| object_file(path).with_extension("log");
    let before = std::fs::read(log_of(&emptied)).unwrap();
    let whole = std::fs::read(log_of(&used)).unwrap();
    assert_eq!(before[8192..8196], *b"evR2", "no record of the previous use is left");
    let records: Vec<usize> = (8192..whole.len())
        .step_by(512)
        .filter(|&at| whole[at..at + 4] == *b"evR2" && whole[at + 8..at + 16] == whole[8200..8208])
        .collect();
    assert_eq!(records.len(), 3);
    let after = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        std::fs::write(log_of(&used), &bytes).unwrap();
        number_in(&used)
    };
    for at in [0, 5, 20, 70, 200, 511] {
        for record in &records {
            assert_eq!(after(&|log| log[record + at] ^= 1), None, "byte {at}");
        }
    }
    let newest = if whole[..4096] == before[..4096] { 4096 } else { 0 };
    assert_eq!(after(&|log| log[newest + 24] ^= 1), None);
    // Zeros in place of a record, or the previous use's bytes there: a disk that lost a write.
    for (record, next) in records.iter().zip([records[1], records[2], whole.len()]) {
        assert_eq!(after(&|log| log[*record..next].fill(0)), None);
    }
    let lost = |log: &mut [u8]| log[8192..records[1]].copy_from_slice(&before[8192..records[1]]);
    assert_eq!(after(&lost), None);
    let report = check(&used, &CheckOptions::new()).unwrap();
    assert!(report.is_damaged(), "{report:#?}");
    // After a power failure that lost the progress, only the last record may look like a torn
    // write.
    let cut = |change: &dyn Fn(&mut [u8])| {
        after(&|log| {
            lose_progress(log);
            change(log);
        })
    };
    assert_eq!(cut(&|_| {}), Some(9));
    for (record, next) in records.iter().zip([records[1], records[2]]) {
        assert_eq!(cut(&|log| log[*record..next].fill(0)), None);
    }
    assert_eq!(cut(&lost), None);
    assert_eq!(cut(&|log| log[records[2]..].fill(0)), Some(8));
    for at in [0, 5, 20, 70, 200, 511] {
        for record in &records {
            assert_eq!(cut(&|log| log[record + at] ^= 1), None, "byte {at}");
        }
    }
}

#[test]
fn a_partly_written_catalog_is_recovered_from_its_log() {
    let test = TestStore::new();
    for name in ["a", "b"] {
        test.create::<u64, _>(name, 1).unwrap();
    }
    let before = std::fs::read(test.path().join("catalog")).unwrap();
    test.create::<u64, _>("c", 1).unwrap();
    let copies = tempfile::tempdir().unwrap();
    for page_zero_was_written in [false, true] {
        let copy = copies.path().join(page_zero_was_written.to_string());
        copy_store(&test.path(), &copy);
        let after = std::fs::read(copy.join("catalog")).unwrap();
        let mut torn = before.clone();
        torn.extend_from_slice(&after[before.len()..]);
        if page_zero_was_written {
            torn[..4096].copy_from_slice(&after[..4096]);
        }
        assert_ne!(torn, after, "the third object changed a page of the catalog");
        std::fs::write(copy.join("catalog"), torn).unwrap();
    }
    drop(test);
    for page_zero_was_written in [false, true] {
        let copy = copies.path().join(page_zero_was_written.to_string());
        let store = Store::open(&copy).unwrap();
        assert_eq!(store.list().unwrap(), ["a", "b", "c"]);
        store.create::<u64, _>("d", 1).unwrap();
        store.remove("a").unwrap();
        drop(store);
        let store = Store::open(&copy).unwrap();
        assert_eq!(store.list().unwrap(), ["b", "c", "d"]);
        assert_eq!(*store.read::<u64>("c").unwrap(), 1);
    }
}

#[test]
#[ignore = "a child: it forks, which a program of many tests must not"]
fn child_forks_with_a_session() {
    let Some(path) = argument(0) else { return };
    let store = Store::open(&path).unwrap();
    let mut session = store.write::<State>("state").unwrap();
    step(session.root_mut(), 1).unwrap();
    // SAFETY: no other thread of this process holds a lock, so the child may call the library. It
    // ends without returning.
    let forked = unsafe { libc::fork() };
    if forked == 0 {
        let refused = matches!(session.commit(), Err(Error::Forked { .. }))
            && matches!(session.rollback(), Err(Error::Forked { .. }));
        drop(session);
        drop(store);
        // SAFETY: ends the process and nothing else.
        unsafe { libc::_exit(if refused { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(forked, &raw mut status, 0) };
    assert_eq!(libc::WEXITSTATUS(status), 7, "the forked child was not refused");
    // The parent's lock and its grown memory are unaffected by the child.
    println!("\nforked");
    let _ = std::io::stdin().read_line(&mut String::new());
    step(session.root_mut(), 2).unwrap();
    session.commit().unwrap();
    session.close().unwrap();
}

#[test]
fn a_forked_child_can_neither_commit_nor_end_its_parents_session() {
    let test = TestStore::new();
    new_state(&test);
    let mut process = child("child_forks_with_a_session", &[test.path().to_str().unwrap()]);
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    while line.trim() != "forked" {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the process ended early");
    }
    assert!(matches!(test.write::<State>("state"), Err(Error::Busy { .. })));
    std::io::Write::write_all(&mut process.stdin.take().unwrap(), b"\n").unwrap();
    assert!(process.wait().unwrap().success());
    let state = test.read::<State>("state").unwrap();
    assert_eq!(state.number, 2);
    check_whole(&state);
}
