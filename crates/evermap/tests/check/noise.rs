//! Noise, and wrong values with correct checksums: a check finishes whatever the files contain.

use super::*;

#[test]
fn a_check_finishes_with_noise_anywhere() {
    let seed = std::env::var("EVERMAP_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut state: u64 = seed.unwrap_or(0x9e37_79b9_0000_0000 ^ u64::from(std::process::id()));
    println!("EVERMAP_SEED={state}");
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let test = TestStore::in_memory();
    fill(&test, "v");
    let mut session = test.write::<Words>("v").unwrap();
    session.root_mut().insert("again", [1]).unwrap();
    session.commit().unwrap();
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy");
    copy_store(&test.path(), &copy);
    drop(session);
    let object = object_file(&copy);
    let files = [
        object.clone(),
        object.with_extension("log"),
        copy.join("catalog"),
        copy.join("catalog.log"),
    ];
    for round in 0..150 {
        let file = &files[random() as usize % files.len()];
        let whole = std::fs::read(file).unwrap();
        let at = random() as usize % whole.len();
        let length = 1 << (random() % 13);
        rewrite(file, |bytes| match random() % 5 {
            0 => bytes.truncate(at),
            _ => bytes[at..].iter_mut().take(length).for_each(|byte| *byte = random() as u8),
        });
        let report = look(&copy);
        // All findings must name an existing file.
        assert!(report.findings.iter().all(|f| !f.what.is_empty()), "round {round}");
        std::fs::write(file, whole).unwrap();
    }
    assert_undamaged(&copy);
}

#[test]
fn a_check_finishes_with_a_wrong_superblock_that_has_a_correct_checksum() {
    let test = TestStore::in_memory();
    test.create::<PVec<u64>, _>("v", from_iter(0..10_000)).unwrap();
    let (path, _directory) = test.close();
    for file in [object_file(&path), path.join("catalog")] {
        let whole = std::fs::read(&file).unwrap();
        for offset in (88..160).step_by(8).chain((512..560).step_by(8)).chain([136]) {
            for value in [0u64, 1, 4095, 4096, 65536, 1 << 33, 1 << 45, u64::MAX, u64::MAX - 4095] {
                rewrite(&file, |bytes| {
                    bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
                    let mut head = bytes[..3072].to_vec();
                    head[248..256].fill(0);
                    bytes[252..256].copy_from_slice(&crc32c_of(&head).to_le_bytes());
                });
                look(&path);
                std::fs::write(&file, &whole).unwrap();
            }
        }
    }
    assert_clean(&path);
}
