//! An audit finds exactly the dangling pointers and exactly the unreachable blocks.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::{HashMap, HashSet};
use std::ptr::NonNull;

use common::{Random, TestStore, object_file};
use evermap::tools::{
    AuditOptions, AuditReport, Confidence, Doubt, MemoryMap, PointerKind, Severity, Typing, audit,
};
use evermap::{
    Error, PBTree, PBox, PMap, PString, PTextMap, PVec, Persist, Plain, Ptr, RawSession, Store,
    from_iter,
};

fn look(store: &Store, name: &str) -> AuditReport {
    audit(store.path(), name, &AuditOptions::new()).unwrap()
}

/// Allocates a zeroed block of words in a raw object.
fn block(session: &RawSession, words: usize) -> NonNull<u64> {
    let block = session.heap().allocate(words * 8, 8).unwrap().cast::<u64>();
    // SAFETY: the block is large enough, and only this code accesses it.
    unsafe { block.write_bytes(0, session.heap().usable_size(block.cast()) / 8) };
    block
}

fn put(block: NonNull<u64>, word: usize, value: u64) {
    // SAFETY: the tests stay inside their blocks.
    unsafe { block.add(word).write(value) };
}

fn address(block: NonNull<u64>) -> u64 {
    block.as_ptr() as u64
}

fn finish(mut session: RawSession, root: NonNull<u64>, bytes: u64) {
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(root.cast()), bytes, [0; 16], "") }.unwrap();
    session.commit().unwrap();
    session.close().unwrap();
}

/// An address in this program.
fn foreign() -> (Box<u64>, u64) {
    let own = Box::new(1);
    let address = &raw const *own as u64;
    (own, address)
}

#[derive(Default)]
struct Model {
    blocks: Vec<(NonNull<u64>, usize)>,
    edges: HashMap<usize, Vec<usize>>,
    foreign: HashMap<usize, u64>,
    dangling: HashMap<usize, u64>,
}

impl Model {
    fn reached(&self) -> HashSet<usize> {
        let mut reached = HashSet::from([0]);
        let mut queue = vec![0];
        while let Some(at) = queue.pop() {
            for &next in self.edges.get(&at).into_iter().flatten() {
                if reached.insert(next) {
                    queue.push(next);
                }
            }
        }
        reached
    }
}

/// A random graph: every non-zero word is an edge, foreign, dangling, or a number.
fn random_graph(session: &RawSession, random: &mut Random) -> Model {
    let mut model = Model::default();
    let count = 2 + random.below(60) as usize;
    let words = |random: &mut Random| match random.below(12) {
        0 => 8_200 + random.below(20_000) as usize,
        1 => 500 + random.below(3_000) as usize,
        _ => 2 + random.below(40) as usize,
    };
    for _ in 0..count {
        let words = words(random);
        model.blocks.push((block(session, words), words));
    }
    let freed: Vec<NonNull<u64>> = (0..10).map(|_| block(session, words(random))).collect();
    for at in 0..count {
        let (holder, words) = model.blocks[at];
        let mut places = HashSet::new();
        for _ in 0..random.below(5) {
            let place = random.below(words as u64) as usize;
            if !places.insert(place) {
                continue;
            }
            let to = random.below(count as u64) as usize;
            let value = match random.below(8) {
                0 => {
                    *model.foreign.entry(at).or_default() += 1;
                    0x7f12_3400_0000 + random.below(1 << 20) * 8
                }
                1 => {
                    *model.dangling.entry(at).or_default() += 1;
                    address(freed[random.below(10) as usize])
                }
                2 => random.below(60_000),
                3 => (random.below(1_000_000) as f64 + 0.5).to_bits(),
                kind => {
                    model.edges.entry(at).or_default().push(to);
                    let inside = random.below(model.blocks[to].1 as u64 * 8);
                    address(model.blocks[to].0) + if kind == 4 { inside } else { 0 }
                }
            };
            put(holder, place, value);
        }
    }
    for block in freed {
        // SAFETY: nothing refers to the block.
        unsafe { session.heap().try_free(block.cast()) }.unwrap();
    }
    model
}

#[test]
fn random_graphs_are_audited_exactly() {
    let mut random = Random::from_environment("random graphs");
    let store = TestStore::in_memory();
    for round in 0..40 {
        let name = format!("graph {round}");
        store.create_raw(&name).unwrap();
        let session = store.write_raw(&name).unwrap();
        let model = random_graph(&session, &mut random);
        let heap = session.heap();
        let usable: Vec<u64> =
            model.blocks.iter().map(|(b, _)| heap.usable_size(b.cast()) as u64).collect();
        finish(session, model.blocks[0].0, 16);
        let report = look(&store, &name);
        let reached = model.reached();
        let sum = |of: &HashMap<usize, u64>| -> u64 {
            of.iter().filter(|(at, _)| reached.contains(at)).map(|(_, count)| count).sum()
        };
        assert_eq!(report.count(PointerKind::Foreign), sum(&model.foreign), "round {round}");
        assert_eq!(report.count(PointerKind::Dangling), sum(&model.dangling), "round {round}");
        assert_eq!(report.blocks, model.blocks.len() as u64, "round {round}");
        assert_eq!(report.reached_blocks, reached.len() as u64, "round {round}");
        let lost = (0..usable.len()).filter(|at| !reached.contains(at));
        assert_eq!(report.leaks.blocks, lost.clone().count() as u64, "round {round}");
        let sizes: u64 = report.sizes.iter().map(|size| size.leaked_blocks).sum();
        assert_eq!(sizes, report.leaks.blocks);
        let is_led_to = |at: usize| {
            model
                .edges
                .iter()
                .any(|(from, to)| *from != at && !reached.contains(from) && to.contains(&at))
        };
        let heads = lost.filter(|at| !is_led_to(*at)).count() as u64;
        assert_eq!(report.leaks.heads, heads, "round {round}");
    }
}

#[test]
fn leaks_are_doubted_if_the_root_has_no_pointer() {
    let store = TestStore::in_memory();
    store.create::<u64, _>("typed", 7).unwrap();
    store.create::<PVec<u64>, _>("leads", [7]).unwrap();
    for (name, doubt) in [("typed", Some(Doubt::NoPointersByType)), ("leads", None)] {
        assert_eq!(look(&store, name).doubt(), None, "{name}: nothing is leaked");
        let mut session = store.write_raw(name).unwrap();
        block(&session, 8);
        session.commit().unwrap();
        session.close().unwrap();
        let report = look(&store, name);
        assert_eq!((report.leaks.blocks, report.doubt()), (1, doubt), "{name}");
        assert!(!report.is_clean());
    }
    // The root does not lead to its own block. A root that does leaves no doubt.
    store.create_raw("raw").unwrap();
    let mut session = store.write_raw("raw").unwrap();
    let (root, next) = (block(&session, 8), block(&session, 8));
    block(&session, 8);
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(root.cast()), 64, [0; 16], "") }.unwrap();
    session.commit().unwrap();
    let report = look(&store, "raw");
    assert_eq!((report.reached_blocks, report.doubt()), (1, Some(Doubt::NoPointers)));
    put(root, 1, address(next));
    session.commit().unwrap();
    session.close().unwrap();
    let report = look(&store, "raw");
    assert_eq!((report.reached_from_root, report.leaks.blocks, report.doubt()), (1, 1, None));
}

#[test]
fn each_kind_of_pointer_is_reported_with_its_path() {
    let store = TestStore::in_memory();
    let other = store.create_raw("other").and_then(|()| store.write_raw("other")).unwrap();
    let there = block(&other, 8);
    finish(other, there, 64);
    store.create_raw("raw").unwrap();
    let session = store.write_raw("raw").unwrap();
    let (root, middle, leaf) = (block(&session, 8), block(&session, 12), block(&session, 8));
    let gone = block(&session, 300);
    let (_own, foreign) = foreign();
    put(root, 2, address(middle));
    put(middle, 5, address(leaf) + 24);
    put(leaf, 1, foreign);
    put(leaf, 2, address(there));
    put(leaf, 3, address(gone));
    put(leaf, 4, address(root) / 65_536 * 65_536 - 4096);
    put(leaf, 5, address(root) + (1 << 33));
    // SAFETY: nothing refers to the block.
    unsafe { session.heap().try_free(gone.cast()) }.unwrap();
    finish(session, root, 64);

    let map = MemoryMap::of_this_process().unwrap();
    let options = AuditOptions::new().memory_map(map);
    let report = audit(store.path(), "raw", &options).unwrap();
    let path = format!("root +16 -> {:#x} +40 -> {:#x}", address(middle), address(leaf));
    for (kind, offset, to) in [
        (PointerKind::Foreign, 8, ""),
        (PointerKind::OtherObject, 16, "object `other`"),
        (PointerKind::Dangling, 24, "nothing is allocated"),
        (PointerKind::Metadata, 32, "metadata"),
        (PointerKind::NoObject, 40, "belong to no object"),
    ] {
        let found =
            report.findings.iter().find(|f| f.kind == kind).unwrap_or_else(|| panic!("{kind}"));
        assert_eq!(found.samples.len(), 1);
        assert_eq!(found.samples[0].path, format!("{path} +{offset}"), "{kind}");
        assert_eq!(found.samples[0].address, address(leaf) + offset);
        assert!(found.to.contains(to), "{found:?}");
        assert_eq!(found.confidence, Confidence::Likely, "{kind}");
        let is_damage = kind == PointerKind::Foreign;
        assert_eq!(found.severity == Severity::Damage, is_damage, "{kind}");
    }
    assert_eq!(report.findings.len(), 5, "{:#?}", report.findings);
    let foreign = &report.findings.iter().find(|f| f.kind == PointerKind::Foreign).unwrap().to;
    assert!(foreign.contains("heap") || foreign.contains("anonymous"), "{foreign}");
    assert_eq!((report.interior, report.leaks.blocks, report.typing), (1, 0, Typing::Untyped));
}

#[derive(Persist)]
#[repr(C)]
struct Book {
    pages: PVec<Page>,
    index: PMap<PString, PVec<u32>>,
    cover: Option<PBox<Cover>>,
    numbers: PVec<u64>,
    marks: [Ptr<u64>; 2],
}

#[derive(Persist)]
#[repr(C)]
struct Page {
    title: PString,
    place: Place,
    note: Option<PBox<Cover>>,
}

#[derive(Persist)]
#[repr(C)]
struct Cover {
    text: PString,
    lines: PVec<PString>,
}

#[derive(Clone, Copy, Persist, Plain)]
#[repr(C)]
struct Place {
    shelf: u32,
    row: u32,
}

const LINES: [&str; 2] = ["a line of more than 23 bytes", "another line of that length"];

/// Ten pages, every other one with a note of two lines, and numbers that equal addresses of the
/// object.
fn book(store: &Store, name: &str) {
    let empty = BookInit {
        pages: PVec::new(),
        index: PMap::new(),
        cover: None::<CoverInit<&str, [&str; 0]>>,
        numbers: PVec::new(),
        marks: [Ptr::null(), Ptr::null()],
    };
    store.create::<Book, _>(name, empty).unwrap();
    let mut session = store.write::<Book>(name).unwrap();
    let base = session.info().unwrap().base_address;
    let mut root = session.root_mut();
    let mut fields = root.fields();
    for number in 0..10u32 {
        let note = CoverInit { text: "a note of more than 23 bytes", lines: LINES };
        let title = format!("page {number}");
        let place = Place { shelf: number, row: 1 };
        let note = (number % 2 == 1).then_some(note);
        fields.pages.push(PageInit { title: title.as_str(), place, note }).unwrap();
        fields.index.insert(title.as_str(), [number, 7]).unwrap();
    }
    let numbers = [base, base + 70_000, 0x7f12_3400_0000, 0x5555_5600_0000];
    fields.numbers.extend(numbers).unwrap();
    session.commit().unwrap();
    session.close().unwrap();
}

#[test]
fn a_typed_object_is_counted_by_type_and_its_numbers_are_not_pointers() {
    let store = TestStore::in_memory();
    book(&store, "book");
    let report = look(&store, "book");
    assert!(report.is_clean(), "{report:#?}");
    assert_eq!(report.typing, Typing::Typed);
    assert_eq!(report.reached_blocks, report.blocks);
    let count = |name: &str| report.types.iter().find(|t| t.name == name).map_or(0, |t| t.values);
    assert_eq!((count("Book"), count("Page"), count("Cover"), count("Place")), (1, 10, 5, 10));
    // Titles, keys, and three texts per note.
    assert_eq!((count("PString"), count("PVec<u32>"), count("Ptr<u64>")), (35, 10, 2));
    // In an object without a type, the same words are pointers.
    let mut session = store.write_raw("book").unwrap();
    let root = session.root();
    let moved = block(&session, 64);
    // SAFETY: the root is that large.
    unsafe {
        moved.cast::<u8>().copy_from(NonNull::new(root.address).unwrap(), root.bytes as usize)
    };
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(moved.cast()), root.bytes, [1; 16], &root.description) }
        .unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    let report = look(&store, "book");
    assert_eq!(report.typing, Typing::Untyped);
    // Ignore merely possible pointers: cells of the index may look like small addresses.
    let likely = report.findings.iter().filter(|f| f.confidence == Confidence::Likely);
    let foreign: u64 =
        likely.filter(|f| f.kind == PointerKind::Foreign).map(|found| found.count).sum();
    assert_eq!(foreign, 2, "{:#?}", report.findings);
    assert_eq!(report.count(PointerKind::Metadata), 1);
}

/// Overwrites a word of an object at any address.
fn scribble(store: &Store, name: &str, at: u64, value: u64) {
    let mut session = store.write_raw(name).unwrap();
    let place: *mut u64 = std::ptr::with_exposed_provenance_mut(at as usize);
    // SAFETY: the tests pass addresses inside the object, which is mapped writable.
    unsafe { place.write(value) };
    session.commit().unwrap();
    session.close().unwrap();
}

#[test]
fn errors_in_a_typed_object_name_its_fields() {
    let store = TestStore::in_memory();
    let (_own, foreign) = foreign();
    let find = |report: &AuditReport, kind: PointerKind, path: &str| {
        let found = report.findings.iter().find(|f| f.kind == kind);
        let found = found.unwrap_or_else(|| panic!("no {kind} in {:#?}", report.findings));
        assert_eq!(found.samples[0].path, path, "{kind}");
        assert_eq!(found.confidence, Confidence::Certain);
        assert_eq!(found.severity, Severity::Damage);
    };
    let place = |name: &str, of: fn(&Book) -> u64| {
        book(&store, name);
        of(&store.read::<Book>(name).unwrap())
    };
    let note = |book: &Book| &raw const book.pages[3].note as u64;
    let at = place("a", note);
    scribble(&store, "a", at, foreign);
    let report = look(&store, "a");
    find(&report, PointerKind::Foreign, "root.pages[3].note");
    // The note leaks everything it owned: itself, its text, its lines and their two texts.
    assert_eq!((report.leaks.blocks, report.leaks.heads), (5, 1));
    assert!(report.leaks.samples[0].is_head && report.is_damaged());

    let at = place("b", |book| std::ptr::from_ref(book.index.get("page 4").unwrap()) as u64);
    scribble(&store, "b", at + 16, 1 << 50);
    find(&look(&store, "b"), PointerKind::Broken, "root.index[\"page 4\"]");
    scribble(&store, "b", at, at & !7);
    find(&look(&store, "b"), PointerKind::Misplaced, "root.index[\"page 4\"]");

    let at = place("c", |book| &raw const book.marks[1] as u64);
    scribble(&store, "c", at, foreign);
    find(&look(&store, "c"), PointerKind::Foreign, "root.marks[1]");
    scribble(&store, "c", at, 12);
    find(&look(&store, "c"), PointerKind::Foreign, "root.marks[1]");

    let at = place("d", |book| &raw const book.pages[1].note as u64);
    let other = note(&store.read::<Book>("d").unwrap());
    let value = {
        let _open = store.read::<Book>("d").unwrap();
        // SAFETY: the address of a note in an open object.
        unsafe { *std::ptr::with_exposed_provenance::<u64>(other as usize) }
    };
    scribble(&store, "d", at, value);
    find(&look(&store, "d"), PointerKind::Shared, "root.pages[3].note");

    let at = place("e", |book| &raw const book.cover as u64);
    let free = {
        let mut session = store.write_raw("e").unwrap();
        let gone = block(&session, 8);
        // SAFETY: nothing refers to the block.
        unsafe { session.heap().try_free(gone.cast()) }.unwrap();
        session.commit().unwrap();
        address(gone)
    };
    scribble(&store, "e", at, free);
    find(&look(&store, "e"), PointerKind::Dangling, "root.cover");
}

#[test]
fn a_text_map_is_walked_block_by_block() {
    let store = TestStore::in_memory();
    let pairs = (0..60_000).map(|n| (format!("key {n}"), format!("the value of number {n}")));
    store.create::<PTextMap, _>("texts", from_iter(pairs)).unwrap();
    let report = look(&store, "texts");
    assert!(report.is_clean(), "{report:#?}");
    assert_eq!((report.typing, report.reached_blocks), (Typing::Typed, report.blocks));
    // Three blocks of records, the vector of them, and the index.
    assert_eq!(report.blocks, 5);
    let (_own, foreign) = foreign();
    let at = std::ptr::from_ref(&*store.read::<PTextMap>("texts").unwrap()) as u64;
    scribble(&store, "texts", at + 24, foreign);
    let report = look(&store, "texts");
    let found = report.findings.iter().find(|f| f.kind == PointerKind::Foreign).unwrap();
    assert_eq!(found.samples[0].path, "root.cells");
}

#[test]
fn a_string_of_an_impossible_length_is_damage() {
    let store = TestStore::in_memory();
    store.create::<PVec<PString>, _>("strings", ["one", "two"]).unwrap();
    let at = store.read::<PVec<PString>>("strings").unwrap().as_ptr() as u64;
    scribble(&store, "strings", at + 24 + 16, 24 << 56);
    let report = look(&store, "strings");
    let found = report.findings.iter().find(|f| f.kind == PointerKind::Broken).unwrap();
    assert_eq!(found.samples[0].path, "root[1]");
    assert!(report.is_damaged());
}

#[test]
fn trees_are_walked_node_by_node() {
    let store = TestStore::in_memory();
    type Tree = PBTree<u64, PVec<PString>>;
    store.create::<Tree, _>("tree", PBTree::new()).unwrap();
    let mut session = store.write::<Tree>("tree").unwrap();
    for number in 0..3_000u64 {
        session.root_mut().insert(number * 7 % 3_001, ["one", LINES[0]]).unwrap();
    }
    session.commit().unwrap();
    session.close().unwrap();
    let report = look(&store, "tree");
    assert!(report.is_clean(), "{report:#?}");
    let count = |name: &str| report.types.iter().find(|t| t.name == name).map_or(0, |t| t.values);
    assert_eq!((count("PVec<PString>"), count("PString")), (3_000, 6_000));
    let at = {
        let tree = store.read::<Tree>("tree").unwrap();
        std::ptr::from_ref(&tree.get(&1_234).unwrap()[1]) as u64
    };
    let (_own, foreign) = foreign();
    scribble(&store, "tree", at, foreign);
    let report = look(&store, "tree");
    assert_eq!((report.findings.len(), report.leaks.blocks), (1, 1));
    assert_eq!(report.findings[0].samples[0].path, "root[1234][1]");
}

#[test]
fn a_long_list_is_walked_and_its_path_is_shortened() {
    let store = TestStore::in_memory();
    store.create_raw("list").unwrap();
    let session = store.write_raw("list").unwrap();
    let nodes: Vec<NonNull<u64>> = (0..20_000).map(|_| block(&session, 2)).collect();
    nodes.windows(2).for_each(|pair| put(pair[0], 0, address(pair[1])));
    let (_own, foreign) = foreign();
    put(nodes[19_999], 1, foreign);
    finish(session, nodes[0], 16);
    // Once with memory for four pieces of 64 KiB of the object, and once for all of it.
    for memory_bytes in [0, 1 << 30] {
        let options = AuditOptions::new().memory_bytes(memory_bytes).samples(1);
        let report = audit(store.path(), "list", &options).unwrap();
        assert_eq!((report.reached_blocks, report.leaks.blocks), (20_000, 0));
        let path = &report.findings[0].samples[0].path;
        assert!(path.starts_with("root +0 -> ") && path.contains(" blocks) .. "), "{path}");
        assert!(path.ends_with(&format!("{:#x} +8", address(nodes[19_999]))), "{path}");
        assert!(path.len() < 1000);
    }
}

#[test]
fn an_object_without_a_root_has_leaked_everything() {
    let store = TestStore::in_memory();
    store.create_raw("raw").unwrap();
    let mut session = store.write_raw("raw").unwrap();
    let (one, two) = (block(&session, 4), block(&session, 10_000));
    put(one, 0, address(two));
    session.commit().unwrap();
    session.close().unwrap();
    let report = look(&store, "raw");
    assert!(!report.has_root && !report.is_damaged() && !report.is_clean());
    assert_eq!((report.leaks.blocks, report.leaks.heads, report.leaks.bytes), (2, 1, 32 + 81_920));
    assert_eq!(report.leaks.samples[0].address, address(one));
}

#[test]
fn pairs_of_numbers_are_distinguished_from_process_pointers() {
    let store = TestStore::in_memory();
    store.create_raw("pairs").unwrap();
    let session = store.write_raw("pairs").unwrap();
    let root = block(&session, 400);
    // Pairs of 32 bits whose upper halves count up through addresses that look like a library's.
    (0..300).for_each(|n| put(root, n as usize, ((0x7e00 + n) << 32) | (n * 8)));
    finish(session, root, 3200);
    let report = look(&store, "pairs");
    assert_eq!(report.count(PointerKind::Foreign), 300);
    assert!(!report.is_damaged(), "{:#?}", report.findings);
}

/// Random bytes in an object's file: an audit answers or returns a typed error.
#[test]
fn damage_of_any_kind_causes_no_panic_and_no_signal() {
    let mut random = Random::from_environment("damage");
    let store = TestStore::in_memory();
    book(&store, "book");
    let (path, _directory) = store.close();
    let file = object_file(&path);
    let sound = std::fs::read(&file).unwrap();
    for _ in 0..300 {
        let mut bytes = sound.clone();
        let parts = [3072..4096, 4096..20_000, 65_536..80_000, 0..sound.len() as u64];
        for _ in 0..1 + random.below(60) {
            let part = &parts[random.below(4) as usize];
            let part = part.start..part.end.min(sound.len() as u64);
            let at = (part.start + random.below(part.end - part.start)) as usize;
            bytes[at] = random.number() as u8;
        }
        if random.one_in(10) {
            bytes.truncate(random.below(sound.len() as u64) as usize);
        }
        std::fs::write(&file, &bytes).unwrap();
        match audit(&path, "book", &AuditOptions::new()) {
            Ok(report) => assert!(report.reached_blocks <= report.blocks),
            Err(Error::Damaged { .. } | Error::Foreign { .. } | Error::NewerFormat { .. }) => {}
            // Sometimes the random bytes require a log.
            Err(Error::LogMissing { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn objects_that_cannot_be_audited_are_refused_by_name() {
    let store = TestStore::in_memory();
    let missing = audit(store.path(), "missing", &AuditOptions::new());
    assert!(matches!(missing, Err(Error::NotFound { .. })));
    let nowhere = audit(store.path().join("nowhere"), "a", &AuditOptions::new());
    assert!(matches!(nowhere, Err(Error::NoStore { .. })));
}

/// Texts as programs store them: ended by a zero, padded with zeros, or concatenated.
fn lay_texts(session: &RawSession, texts: &[&str]) -> Vec<NonNull<u64>> {
    let mut laid = Vec::new();
    for text in texts {
        let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (bytes, letter) in [(text.as_bytes(), 1), (&wide[..], 2)] {
            for length in (letter..bytes.len().min(90)).step_by(letter) {
                let to = block(session, bytes.len() / 8 + 2);
                let from = &bytes[bytes.len() - length..];
                // SAFETY: the block is longer than the text.
                unsafe {
                    to.cast::<u8>().as_ptr().copy_from_nonoverlapping(from.as_ptr(), from.len())
                };
                laid.push(to);
            }
        }
    }
    laid
}

#[test]
fn texts_are_not_reported_as_pointers_into_another_store() {
    let texts = [
        "GNU GENERAL PUBLIC LICENSE Version 2, June 1991: \"AS IS\" (WITHOUT WARRANTY) 0123456789 * A",
        "#include <stdio.h>\r\n\tint main(void) { puts(\"Hello, World!\"); return 0; }\n// $HOME/.config\n",
        "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich; œuvre, naïve, señor, Ñandú",
        "Съешь же ещё этих мягких французских булок, да выпей чаю. Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία",
        "我能吞下玻璃而不伤身体。 いろはにほへとちりぬるを カタカナ 키스의 고유조건은 입술끼리",
    ];
    let (one, other) = (TestStore::new(), TestStore::new());
    for here in [&one, &other] {
        here.store.create_raw("o").unwrap();
        let session = here.store.write_raw("o").unwrap();
        let laid = lay_texts(&session, &texts);
        assert!(laid.len() > 500);
        let root = block(&session, laid.len());
        laid.iter().enumerate().for_each(|(word, text)| put(root, word, address(*text)));
        finish(session, root, laid.len() as u64 * 8);
    }
    for here in [&one, &other] {
        let report = look(&here.store, "o");
        assert!(report.reached_blocks > 500 && report.findings.is_empty(), "{report:#?}");
    }
}

#[derive(Clone, Copy, Persist)]
#[repr(u8)]
#[allow(dead_code)]
enum Größe {
    Klein,
    Groß,
}

#[derive(Clone, Copy, Persist)]
#[repr(u8)]
#[allow(dead_code)]
enum Ärger {
    Wenig,
    Viel,
}

#[test]
fn types_with_names_beyond_ascii_are_counted() {
    let store = TestStore::in_memory();
    store.create::<PVec<Größe>, _>("sizes", [Größe::Klein, Größe::Groß]).unwrap();
    store.create::<PVec<Ärger>, _>("troubles", [Ärger::Wenig, Ärger::Viel]).unwrap();
    for (name, expected) in [("sizes", "Größe"), ("troubles", "Ärger")] {
        let report = look(&store, name);
        let found = report.types.iter().find(|count| count.name.ends_with(expected));
        assert_eq!(found.map(|count| count.values), Some(2), "{:?}", report.types);
    }
}
