//! Verification of pages against their checksums.

use super::*;

#[test]
fn a_page_that_does_not_match_its_checksum_is_found_and_can_be_accepted() {
    let (path, _directory) = closed_store();
    let file = object_file(&path);
    let whole = std::fs::read(&file).unwrap();
    let word = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().unwrap());
    let (base, meta, table) = (word(512), word(544) as usize, word(552));
    assert_ne!(table, 0, "a new object has checksums");
    let table = (table - base) as usize;
    // In data, in the root, and in the table of checksums.
    let cases = [
        (meta + 70_000, "the page at byte"),
        (3080, "the checksum of the root in page 0"),
        (table + 9, "the checksum table's line"),
    ];
    for (at, what) in cases {
        rewrite(&file, |bytes| bytes[at] ^= 4);
        let report = look(&path);
        let damage: Vec<&Finding> =
            report.findings.iter().filter(|f| f.what.starts_with(what)).collect();
        assert_eq!(damage.len(), 1, "{report:#?}");
        // Not without being asked to.
        let left = check(&path, &CheckOptions::new().repair(true)).unwrap();
        assert!(left.is_damaged() && left.actions.is_empty(), "{left:#?}");
        if what.contains("page 0") {
            std::fs::write(&file, &whole).unwrap();
            continue;
        }
        let damaged = std::fs::read(&file).unwrap();
        let done = check(&path, &CheckOptions::new().repair(true).accept_data(true)).unwrap();
        assert!(!done.is_damaged(), "{done:#?}");
        let kept = done.kept_in.unwrap().join("objects").join(file.file_name().unwrap());
        assert_eq!(std::fs::read(kept).unwrap(), damaged, "the copy must be the damaged file");
        assert_clean(&path);
        let now = std::fs::read(&file).unwrap();
        assert_eq!(now[meta..], damaged[meta..], "data was changed");
        std::fs::write(&file, &whole).unwrap();
    }
    assert_clean(&path);
}

#[test]
fn checksums_calculated_from_the_format_description_match() {
    let (path, _directory) = closed_store();
    let file = object_file(&path);
    let mut bytes = std::fs::read(&file).unwrap();
    let whole = bytes.clone();
    let regions = u32::from_le_bytes(bytes[140..144].try_into().unwrap());
    let length = u64::from_le_bytes(bytes[528..536].try_into().unwrap()) as usize;
    assert!(regions >= 1);
    reseal(&mut bytes[..length]);
    let table = u64::from_le_bytes(bytes[552..560].try_into().unwrap())
        - u64::from_le_bytes(bytes[512..520].try_into().unwrap());
    let table = table as usize;
    assert_eq!(
        bytes[table..table + length / 4096 / 15 * 64],
        whole[table..][..length / 4096 / 15 * 64]
    );
}
