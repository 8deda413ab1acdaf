//! Commits behind a hole in a log: damage, or what a power cut leaves at a lower level.

use super::*;

#[test]
fn a_commit_behind_a_hole_in_the_log_is_damage() {
    hole_in_the_log(Durability::Commit, Severity::Damage);
}

#[test]
fn at_level_interval_a_power_cut_may_leave_a_hole_in_the_log_and_it_is_suspect() {
    hole_in_the_log(Durability::Interval(Duration::from_secs(3600)), Severity::Suspect);
}

fn hole_in_the_log(durability: Durability, severity: Severity) {
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
    // As a power cut leaves it: not one page of the object was written back.
    let mut old = lagging;
    old[248..252].copy_from_slice(&1u32.to_le_bytes());
    if std::fs::read(&file).unwrap().len() == old.len() {
        std::fs::write(&file, old).unwrap();
    }
    assert_sound(&copy);
    let log = file.with_extension("log");
    let bytes = std::fs::read(&log).unwrap();
    let records: Vec<usize> =
        (8192..bytes.len()).step_by(512).filter(|&at| bytes[at..at + 4] == *b"evRC").collect();
    assert_eq!(records.len(), 4);
    // The last one damaged is a torn commit; one before it is not.
    for (damaged, told) in [(3, false), (2, true), (1, true)] {
        rewrite(&log, |bytes| bytes[records[damaged] + 70] ^= 1);
        let report = look(&copy);
        let found = report.findings.iter().any(|f| f.severity == severity);
        assert_eq!(found, told, "record {damaged}: {report:#?}");
        assert_eq!(report.is_clean(), !told);
        std::fs::write(&log, &bytes).unwrap();
    }
}
