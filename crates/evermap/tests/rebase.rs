//! A rebase moves a store to other addresses without loss, and can be undone.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use common::{Random, TestStore};
use evermap::tools::{
    AuditOptions, CheckOptions, HitKind, RebaseOptions, RebaseReport, Typing, audit, check, rebase,
    undo_rebase,
};
use evermap::{Error, PMap, PString, PTextMap, PVec, Store, WriteOptions, from_iter, tools};

const GIB: u64 = 1 << 30;

/// Returns every file of a directory with its bytes, except the files from before a rebase.
fn bytes_of(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut folders = vec![path.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap().path();
            match entry.is_dir() {
                true => folders.push(entry),
                false => {
                    let bytes = std::fs::read(&entry).unwrap();
                    all.push((entry.strip_prefix(path).unwrap().to_path_buf(), bytes));
                }
            }
        }
    }
    all.sort();
    all
}

#[track_caller]
fn assert_undamaged(path: &Path) {
    let report = check(path, &CheckOptions::new()).unwrap();
    assert!(report.is_clean() && report.findings.is_empty(), "{:#?}", report.findings);
}

/// Walks a raw object from its root. Returns words that are not pointers, blocks by number in the
/// order of discovery, and pointers as number and offset.
fn shape(store: &Store, name: &str, blocks: &HashMap<u64, u64>) -> Vec<Vec<u64>> {
    let snapshot = store.read_raw(name).unwrap();
    let root = snapshot.root().address as u64;
    let block_of = |word: u64| {
        blocks.iter().find(|(base, words)| (**base..**base + **words * 8).contains(&word))
    };
    let mut numbers = HashMap::from([(root, 0u64)]);
    let mut order = vec![root];
    let mut shape = Vec::new();
    while shape.len() < order.len() {
        let base = order[shape.len()];
        let mut words = Vec::new();
        for at in 0..blocks[&base] {
            // SAFETY: a block of the open object.
            let word = unsafe {
                std::ptr::with_exposed_provenance::<u64>((base + at * 8) as usize).read()
            };
            match block_of(word) {
                None => words.push(word),
                Some((to, _)) => {
                    let next = numbers.len() as u64;
                    let number = *numbers.entry(*to).or_insert_with(|| {
                        order.push(*to);
                        next
                    });
                    words.extend([u64::MAX, number, word - to]);
                }
            }
        }
        shape.push(words);
    }
    shape
}

/// Creates a random raw object. Returns the address and the words of its blocks.
fn random_object(store: &Store, name: &str, random: &mut Random) -> HashMap<u64, u64> {
    store.create_raw(name).unwrap();
    let mut session = store.write_raw(name).unwrap();
    let mut blocks: Vec<(NonNull<u64>, u64)> = Vec::new();
    for _ in 0..2 + random.below(80) {
        let words =
            if random.one_in(10) { 9_000 + random.below(40_000) } else { 2 + random.below(60) };
        let block = session.heap().allocate_zeroed(words as usize * 8, 8).unwrap().cast();
        blocks.push((block, words));
    }
    for &(block, words) in &blocks {
        for _ in 0..random.below(6) {
            let (to, bytes) = blocks[random.below(blocks.len() as u64) as usize];
            let value = match random.below(4) {
                0 => random.number() & 0xffff_ffff,
                1 => to.as_ptr() as u64 + random.below(bytes * 8),
                _ => to.as_ptr() as u64,
            };
            // SAFETY: inside the block.
            unsafe { block.add(random.below(words) as usize).write(value) };
        }
    }
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(blocks[0].0.cast()), 16, [0; 16], "") }.unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    blocks.iter().map(|(block, words)| (block.as_ptr() as u64, *words)).collect()
}

#[test]
fn raw_objects_are_the_same_graph_after_a_rebase_and_after_its_undo() {
    let mut random = Random::from_environment("raw objects");
    for _ in 0..6 {
        let store = TestStore::in_memory();
        let names = ["one", "two", "three"];
        let blocks: Vec<HashMap<u64, u64>> =
            names.iter().map(|name| random_object(&store, name, &mut random)).collect();
        let before: Vec<_> =
            names.iter().zip(&blocks).map(|(name, blocks)| shape(&store, name, blocks)).collect();
        let (path, _directory) = store.close();
        let bytes = bytes_of(&path);
        let report = rebase(&path, &RebaseOptions::new()).unwrap();
        assert_undamaged(&path);
        let distance = report.to.unwrap().wrapping_sub(report.from[0].0);
        let store = Store::open(&path).unwrap();
        for ((name, blocks), before) in names.iter().zip(&blocks).zip(&before) {
            let moved: HashMap<u64, u64> =
                blocks.iter().map(|(base, words)| (base.wrapping_add(distance), *words)).collect();
            assert_eq!(&shape(&store, name, &moved), before);
        }
        drop(store);
        undo_rebase(&path, false).unwrap();
        assert_eq!(bytes_of(&path), bytes);
    }
}

/// Returns a key. Those of odd numbers need a block.
fn word(number: u64) -> String {
    let rest = if number.is_multiple_of(2) { "" } else { " with more than 23 bytes" };
    format!("word {number}{rest}")
}

/// Creates typed objects of several regions, with numbers that equal addresses of the store.
fn typed(store: &Store) -> u64 {
    store.create::<PMap<PString, PVec<u64>>, _>("words", PMap::new()).unwrap();
    let mut session = store.write::<PMap<PString, PVec<u64>>>("words").unwrap();
    let base = session.info().unwrap().base_address;
    for number in 0..20_000u64 {
        let key = word(number);
        session.root_mut().insert(key.as_str(), [number, base + number * 8]).unwrap();
    }
    session.commit().unwrap();
    session.root_mut().insert("late", [1, 2]).unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    base
}

fn assert_typed(store: &Store, base: u64) {
    let words = store.read::<PMap<PString, PVec<u64>>>("words").unwrap();
    assert_eq!(words.len(), 20_001);
    for number in 0..20_000u64 {
        let found = words.get(word(number).as_str()).unwrap();
        assert_eq!(**found, [number, base + number * 8]);
    }
    assert_eq!(**words.get("late").unwrap(), [1, 2]);
}

#[test]
fn numbers_of_typed_objects_that_look_like_addresses_are_kept_and_reported() {
    let store = TestStore::in_memory();
    let base = typed(&store);
    let (path, _directory) = store.close();
    let report = rebase(&path, &RebaseOptions::new()).unwrap();
    let words = &report.objects[0];
    // The numbers, and remains of pointers in unused capacity of the map.
    assert_eq!(words.typing, Typing::Typed);
    assert!((20_000..30_000).contains(&words.kept), "{}", words.kept);
    let is_number = |path: &str| path.starts_with("root[\"word ") && path.ends_with("\"][1]");
    assert!(words.kept_samples.iter().any(|sample| is_number(&sample.path)), "{words:?}");
    // Two blocks of the map, one for each value, and one for every other key.
    assert_eq!(words.count(HitKind::Typed), 2 + 20_001 + 10_000);
    assert_eq!(words.moved.len(), 1);
    assert_undamaged(&path);
    let store = Store::open(&path).unwrap();
    assert_typed(&store, base);
    assert_ne!(store.info("words").unwrap().base_address, base);
    assert!(audit(&path, "words", &AuditOptions::new()).unwrap().is_clean());
    // The store remains usable.
    let mut session = store.write::<PMap<PString, PVec<u64>>>("words").unwrap();
    session.root_mut().insert("more", (0..200_000).collect::<Vec<u64>>()).unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    store.create::<PVec<u64>, _>("another", [1]).unwrap();
    drop(store);
    assert_undamaged(&path);
}

#[test]
fn texts_in_place_in_blocks_and_in_a_text_map_are_moved() {
    let store = TestStore::in_memory();
    let texts: Vec<String> = (0..4000).map(|n| "xyz ".repeat(11)[..n % 41].to_string()).collect();
    let pairs = || (0..50_000).map(|n| (format!("key {n}"), format!("the value of number {n}")));
    store.create::<PVec<PString>, _>("texts", &texts).unwrap();
    store.create::<PTextMap, _>("pairs", from_iter(pairs())).unwrap();
    let mut session = store.write::<PVec<PString>>("texts").unwrap();
    // Short texts in blocks, as in objects of earlier builds.
    for mut text in session.root_mut().iter_mut().step_by(3) {
        text.reserve(100).unwrap();
    }
    session.commit().unwrap();
    session.close().unwrap();
    let (path, _directory) = store.close();
    let report = rebase(&path, &RebaseOptions::new()).unwrap();
    let blocks = (0..4000).filter(|n| n % 3 == 0 || n % 41 > 23).count() as u64;
    let texts_moved = report.objects.iter().find(|object| object.object == "texts").unwrap();
    assert_eq!(texts_moved.count(HitKind::Typed), 1 + blocks);
    assert_undamaged(&path);
    let store = Store::open(&path).unwrap();
    assert_eq!(*store.read::<PVec<PString>>("texts").unwrap(), texts);
    let moved = store.read::<PTextMap>("pairs").unwrap();
    assert!(moved.iter().map(|(key, value)| (key.to_string(), value.to_string())).eq(pairs()));
    assert!(pairs().all(|(key, value)| moved.get(&key) == Some(value.as_str())));
}

#[test]
fn words_of_untyped_objects_are_changed_by_value_and_the_dry_run_lists_each_class() {
    let store = TestStore::in_memory();
    let base = typed(&store);
    store.create_raw("raw").unwrap();
    let mut session = store.write_raw("raw").unwrap();
    let block = session.heap().allocate_zeroed(64, 8).unwrap().cast::<u64>();
    let gone = session.heap().allocate(4096, 8).unwrap();
    // SAFETY: nothing refers to the block.
    unsafe { session.heap().try_free(gone) }.unwrap();
    let own = block.as_ptr() as u64;
    let other = base + 70_000;
    for (at, value) in
        [own, own + 8, gone.as_ptr() as u64, other, 77, own + 40 * GIB].iter().enumerate()
    {
        // SAFETY: inside the block.
        unsafe { block.add(at).write(*value) };
    }
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(block.cast()), 64, [0; 16], "") }.unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    let (path, _directory) = store.close();
    let bytes = bytes_of(&path);
    let options = RebaseOptions::new().dry_run(true);
    let planned = rebase(&path, &options).unwrap();
    assert_eq!(bytes_of(&path), bytes, "a dry run changes nothing");
    assert!(planned.kept_in.is_none() && planned.to.is_none());
    // Addresses that no other test's store uses.
    let places = (36..42).map(|bit| (base / GIB * GIB) ^ (1 << bit));
    let moved = places.map(|to| rebase(&path, &RebaseOptions::new().to(to)));
    let report = moved.into_iter().find_map(Result::ok).unwrap();
    assert_eq!(report.objects, planned.objects);
    let of = |report: &RebaseReport| report.objects.iter().find(|o| o.object == "raw").cloned();
    let raw = of(&report).unwrap();
    let kinds: Vec<(HitKind, u64)> = raw.moved.iter().map(|hit| (hit.kind, hit.count)).collect();
    let each = [HitKind::Beginning, HitKind::Inside, HitKind::NotAllocated, HitKind::OtherObject];
    assert_eq!(kinds, each.map(|kind| (kind, 1)));
    assert_eq!(raw.moved[1].samples[0].path, "root +8");
    let distance = report.to.unwrap().wrapping_sub(report.from[0].0);
    let store = Store::open(&path).unwrap();
    let snapshot = store.read_raw("raw").unwrap();
    // SAFETY: the root is eight words.
    let words = unsafe { *snapshot.root().address.cast::<[u64; 8]>() };
    let moved = |value: u64| value.wrapping_add(distance);
    let gone = gone.as_ptr() as u64;
    assert_eq!(words[..4], [own, own + 8, gone, other].map(moved));
    assert_eq!(words[4..6], [77, own + 40 * GIB]);
}

#[test]
fn commits_in_the_log_are_moved_too() {
    let store = TestStore::in_memory();
    store.create::<PVec<u64>, _>("numbers", [1, 2]).unwrap();
    let reader = store.path().to_path_buf();
    let mut session = store.write_with::<PVec<u64>>("numbers", &WriteOptions::default()).unwrap();
    session.root_mut().push(3).unwrap();
    session.commit().unwrap();
    // A kill leaves this: the commit is in the log, and the file needs the log.
    let copy = store.directory.path().join("copy");
    common::copy_store(&reader, &copy);
    session.close().unwrap();
    let (_path, _directory) = store.close();
    let logs = common::names(&copy.join("objects")).iter().filter(|n| n.ends_with(".log")).count();
    assert_eq!(logs, 1);
    rebase(&copy, &RebaseOptions::new()).unwrap();
    assert_undamaged(&copy);
    assert_eq!(*Store::open(&copy).unwrap().read::<PVec<u64>>("numbers").unwrap(), [1, 2, 3]);
}

#[test]
fn a_store_in_use_or_damaged_is_left_alone() {
    let store = TestStore::in_memory();
    typed(&store);
    let options = RebaseOptions::new();
    assert!(matches!(rebase(store.path(), &options), Err(tools::Error::Store(Error::Busy { .. }))));
    assert!(rebase(store.path(), &options.clone().dry_run(true)).is_ok());
    let (path, directory) = store.close();
    for base in [1, GIB + 4096, 0, 1 << 47, u64::MAX / GIB * GIB] {
        let refused = rebase(&path, &RebaseOptions::new().to(base));
        assert!(matches!(refused, Err(tools::Error::BadBase { .. })), "{base:#x}: {refused:?}");
    }
    let own = rebase(&path, &options.clone().dry_run(true)).unwrap().from[0].0;
    let there = rebase(&path, &RebaseOptions::new().to(own));
    assert!(matches!(there, Err(tools::Error::BadBase { base, .. }) if base == own), "{there:?}");
    let nowhere = directory.path().join("nowhere");
    assert!(matches!(rebase(nowhere, &options), Err(tools::Error::Store(Error::NoStore { .. }))));
    assert!(matches!(undo_rebase(&path, true), Err(tools::Error::NothingKept { .. })));
    let file = common::object_file(&path);
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let before = bytes_of(&path);
    assert!(matches!(rebase(&path, &options), Err(tools::Error::Store(Error::Damaged { .. }))));
    assert_eq!(bytes_of(&path), before);
    assert_eq!(common::names(directory.path()), ["store"]);
}

#[test]
fn an_undo_that_would_lose_commits_needs_force() {
    let store = TestStore::in_memory();
    let base = typed(&store);
    let (path, _directory) = store.close();
    let bytes = bytes_of(&path);
    rebase(&path, &RebaseOptions::new()).unwrap();
    let second = rebase(&path, &RebaseOptions::new()).unwrap();
    let store = Store::open(&path).unwrap();
    assert_typed(&store, base);
    let mut session = store.write::<PMap<PString, PVec<u64>>>("words").unwrap();
    session.root_mut().insert("new", [1]).unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    drop(store);
    let refused = undo_rebase(&path, false);
    assert!(
        matches!(&refused, Err(tools::Error::ChangedSince { what, .. }) if what.contains("words")),
        "{refused:?}"
    );
    let undone = undo_rebase(&path, true).unwrap();
    assert_eq!(undone.arenas, second.from);
    undo_rebase(&path, false).unwrap();
    assert_eq!(bytes_of(&path), bytes);
}

#[test]
fn released_chunks_stay_released() {
    let store = TestStore::in_memory();
    store.create::<PVec<PVec<u64>>, _>("holes", PVec::new()).unwrap();
    let mut session = store.write::<PVec<PVec<u64>>>("holes").unwrap();
    for number in 0..20u64 {
        let words: Vec<u64> = (0..100_000).map(|n| n * 7 + number).collect();
        session.root_mut().push(words).unwrap();
    }
    session.commit().unwrap();
    session.root_mut().retain(|words| !(3..17).contains(&words[0]));
    session.commit().unwrap();
    session.close().unwrap();
    let mut session = store.write::<PVec<PVec<u64>>>("holes").unwrap();
    session.shrink().unwrap();
    session.close().unwrap();
    let report = audit(store.path(), "holes", &AuditOptions::new()).unwrap();
    assert!(report.is_clean(), "{report:#?}");
    let (path, _directory) = store.close();
    assert_undamaged(&path);
    let holes = || {
        let file = std::fs::metadata(common::object_file(&path)).unwrap();
        file.len().saturating_sub(file.blocks() * 512)
    };
    assert!(holes() > 5_000_000, "{} bytes of holes", holes());
    rebase(&path, &RebaseOptions::new()).unwrap();
    assert!(holes() > 5_000_000, "{} bytes of holes", holes());
    assert_undamaged(&path);
    let store = Store::open(&path).unwrap();
    let mut session = store.write::<PVec<PVec<u64>>>("holes").unwrap();
    assert!(session.iter().map(|words| words[1]).eq([7, 8, 9, 24, 25, 26]));
    session.root_mut().push((0..2_000_000u64).collect::<Vec<u64>>()).unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    drop(store);
    assert_undamaged(&path);
}

#[test]
fn a_rebased_backup_is_still_marked_as_one() {
    let store = TestStore::new();
    let copy = store.directory.path().join("copy");
    store.store.backup(&copy).unwrap();
    let original = tools::original_of_backup(&copy).unwrap();
    assert_eq!(original.as_deref(), Some(store.store.path()));
    rebase(&copy, &RebaseOptions::new()).unwrap();
    assert_eq!(tools::original_of_backup(&copy).unwrap(), original);
    undo_rebase(&copy, false).unwrap();
    assert_eq!(tools::original_of_backup(&copy).unwrap(), original);
}
