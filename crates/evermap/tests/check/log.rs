//! Unreadable records of a log: damage, or the result of a power failure.

use super::*;

/// Makes four commits, none of which is applied to the file. Returns the log and its records.
fn logged(durability: Durability) -> (tempfile::TempDir, PathBuf, Vec<u8>, Vec<usize>) {
    let test = TestStore::in_memory();
    fill(&test, "v");
    let _ = std::fs::remove_file(object_file(&test.path()).with_extension("log"));
    let options = WriteOptions::new().durability(durability);
    let mut session = test.write_with::<Words>("v", &options).unwrap();
    let lagging = std::fs::read(object_file(&test.path())).unwrap();
    for n in 0..4u64 {
        session.root_mut().insert("again", [n]).unwrap();
        session.commit().unwrap();
    }
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy");
    copy_store(&test.path(), &copy);
    drop(session);
    let file = object_file(&copy);
    // A power failure can leave this: no page of the object was written back.
    let mut old = lagging;
    old[248..252].copy_from_slice(&LOG_REQUIRED);
    if std::fs::read(&file).unwrap().len() == old.len() {
        std::fs::write(&file, old).unwrap();
    }
    assert_undamaged(&copy);
    let bytes = std::fs::read(file.with_extension("log")).unwrap();
    let records: Vec<usize> =
        (8192..bytes.len()).step_by(512).filter(|&at| bytes[at..at + 4] == *b"evR2").collect();
    assert_eq!(records.len(), 4);
    (copies, copy, bytes, records)
}

const HOUR: Durability = Durability::Interval(Duration::from_secs(3600));

/// Returns true if a check of the store with this log finds damage.
fn is_damaged(copy: &Path, log: &[u8]) -> bool {
    std::fs::write(object_file(copy).with_extension("log"), log).unwrap();
    let report = look(copy);
    assert_eq!(report.is_damaged(), !report.is_clean(), "{report:#?}");
    report.is_damaged()
}

#[test]
fn without_a_reboot_every_lost_record_is_detected() {
    for durability in [Durability::Commit, HOUR] {
        let (_copies, copy, bytes, records) = logged(durability);
        for record in &records {
            for at in [8, 70, 400] {
                let mut log = bytes.clone();
                log[record + at] ^= 1;
                assert!(is_damaged(&copy, &log), "record at {record}, byte {at}");
            }
            let mut log = bytes.clone();
            log[*record..].fill(0);
            assert!(is_damaged(&copy, &log), "record at {record} and all later ones");
        }
        assert!(!is_damaged(&copy, &bytes));
    }
}

#[test]
fn after_a_power_failure_a_lost_durable_record_is_detected_and_a_torn_one_is_accepted() {
    for durability in [Durability::Commit, HOUR] {
        let (_copies, copy, mut bytes, records) = logged(durability);
        lose_progress(&mut bytes);
        let ends = records[1..].iter().copied().chain([bytes.len()]);
        let parts: Vec<(usize, usize)> = records.iter().copied().zip(ends).collect();
        for (number, (start, end)) in parts.into_iter().enumerate() {
            let mut log = bytes.clone();
            log[start..end].fill(0);
            let was_durable = durability == Durability::Commit && number < 3;
            assert_eq!(is_damaged(&copy, &log), was_durable, "{durability:?}, record {number}");
        }
        assert!(!is_damaged(&copy, &bytes));
    }
}
