//! Files of earlier builds open: one store of each released format is kept under `tests/format`.
//! `EVERMAP_WRITE_FORMAT=1 cargo test --test format -- --ignored` makes the one of the current format
//! anew; that is for a new format version only.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};

use common::copy_store;
use evermap::{Mut, Options, PBox, PMap, PString, PVec, Persist, Ptr, Store, Verify};

#[derive(Persist)]
#[repr(C)]
struct Kept {
    title: PString,
    numbers: PVec<u64>,
    by_name: PMap<PString, PVec<u32>>,
    list: Option<PBox<Link>>,
    last: Ptr<Link>,
    flag: bool,
}

#[derive(Persist)]
#[repr(C)]
struct Link {
    value: f64,
    next: Option<PBox<Link>>,
}

/// What this build writes.
const CURRENT: &str = "v1-checksums";

fn folder(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format").join(version)
}

fn check(kept: &Kept) {
    assert_eq!(kept.title, "kept since version 1");
    assert_eq!(kept.numbers.len(), 20_000);
    assert!(kept.numbers.iter().enumerate().all(|(i, n)| *n == (i * i) as u64));
    let names: Vec<(&str, usize)> =
        kept.by_name.iter().map(|(name, pages)| (name.as_str(), pages.len())).collect();
    assert_eq!(names, [("heap", 3), ("übermap", 1), ("empty", 0)]);
    let first = kept.list.as_ref().unwrap();
    let second = first.next.as_ref().unwrap();
    assert_eq!((first.value, second.value), (0.5, -1.25));
    // SAFETY: the pointer was made from the last link, which is still in the list.
    assert_eq!(unsafe { kept.last.as_ref() }.map(|link| link.value), Some(-1.25));
    assert!(kept.flag);
}

fn fill(mut root: Mut<'_, Kept>) -> evermap::Result<()> {
    let mut fields = root.fields();
    fields.title.push_str("kept since version 1")?;
    fields.numbers.extend((0..20_000u64).map(|i| i * i))?;
    fields.by_name.insert("heap", [1u32, 2, 3])?;
    fields.by_name.insert("übermap", [7u32])?;
    fields.by_name.insert("empty", [0u32; 0])?;
    let mut first = fields.list.insert(Link { value: 0.5, next: None })?;
    let mut first = first.fields();
    let second = first.next.insert(Link { value: -1.25, next: None })?;
    fields.last.set(second.as_ptr());
    *fields.flag = true;
    Ok(())
}

#[test]
fn a_store_of_version_1_is_read_and_written() {
    // Without page checksums.
    is_read_and_written("v1", false);
}

#[test]
fn a_store_with_page_checksums_is_read_and_written() {
    is_read_and_written(CURRENT, true);
}

fn is_read_and_written(version: &str, checksums: bool) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    copy_store(&folder(version), &path);
    // What version control does not keep: a directory without files.
    std::fs::create_dir_all(path.join("building")).unwrap();
    let verified = Options::new().verify(Verify::Full);
    let store = verified.open(&path).unwrap();
    assert_eq!(store.list().unwrap(), ["closed", "killed"]);
    for entry in std::fs::read_dir(path.join("objects")).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none() {
            let features = std::fs::read(&file).unwrap()[24];
            assert_eq!(features == 1, checksums, "{}", file.display());
        }
    }
    for name in ["closed", "killed"] {
        check(&store.read::<Kept>(name).unwrap());
        let mut session = store.write::<Kept>(name).unwrap();
        session.root_mut().fields().numbers.push(1).unwrap();
        session.commit().unwrap();
        session.root_mut().fields().numbers.pop();
        session.commit().unwrap();
        session.close().unwrap();
        check(&store.read::<Kept>(name).unwrap());
    }
    store.create::<u64, _>("new", 1).unwrap();
    store.remove("closed").unwrap();
    assert_eq!(store.list().unwrap(), ["killed", "new"]);
}

#[test]
#[ignore = "writes the files that the other test reads; for a new format version only"]
fn write_a_store_of_the_current_format() {
    if std::env::var_os("EVERMAP_WRITE_FORMAT").is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = Store::create_new(&path).unwrap();
    for name in ["closed", "killed"] {
        let empty = Kept {
            title: PString::new(),
            numbers: PVec::new(),
            by_name: PMap::new(),
            list: None,
            last: Ptr::null(),
            flag: false,
        };
        store.create::<Kept, _>(name, empty).unwrap();
        let mut session = store.write::<Kept>(name).unwrap();
        session.root_mut().fields().numbers.extend(0..10u64).unwrap();
        session.commit().unwrap();
        session.root_mut().fields().numbers.clear();
        fill(session.root_mut()).unwrap();
        session.commit().unwrap();
        if name == "killed" {
            // As a kill leaves it: the log is there and required.
            let to = folder(CURRENT);
            let _ = std::fs::remove_dir_all(&to);
            copy_store(&path, &to);
        }
        session.close().unwrap();
    }
}
