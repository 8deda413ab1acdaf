//! Flips each bit of the first page of a document's object: header, region table, name and root.
//! Each opening returns the right document or a typed error.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::FileExt;

use evermap::{Error, Store};
use evermap_dom::{Document, NewDocument, NewNamed, Source, html};

const PAGE: &str = "<title>T</title><p id=a class=b>One <b>two</b>";

fn store(directory: &std::path::Path) -> (Store, File) {
    let store = Store::create_new(directory.join("store")).unwrap();
    let tables = html::parse(PAGE, &Default::default()).unwrap();
    let source = Source { path: "/a.html".into(), size_bytes: 45, modified_ns: 7, hash: [9; 32] };
    let document = NewDocument { tables: &tables, source: &source };
    store.create::<Document, _>("a", NewNamed { document, name: "a" }).unwrap();
    let uuid = store.info("a").unwrap().uuid;
    let path = directory.join("store/objects").join(uuid);
    (store, File::options().read(true).write(true).open(path).unwrap())
}

/// Makes all queries of the command. Returns an error, or true if the document is the right one.
fn ask(store: &Store) -> Result<bool, String> {
    let document = store.read::<Document>("a").map_err(|error| {
        assert!(!matches!(error, Error::Busy { .. }), "{error}");
        error.to_string()
    })?;
    let _ = (document.source(), document.file_name(), document.block_bytes());
    let dom = document.dom().map_err(|error| error.to_string())?;
    let text = dom.select_first(&"p#a.b".parse().unwrap()).map(|found| found.text());
    Ok(text.as_deref() == Some("One two") && dom.title().as_deref() == Some("T"))
}

#[test]
fn a_flipped_bit_in_a_documents_first_page_is_an_error_or_changes_no_result() {
    let directory = tempfile::tempdir().unwrap();
    let (store, file) = store(directory.path());
    assert_eq!(ask(&store), Ok(true));
    let mut page = [0; 4096];
    file.read_exact_at(&mut page, 0).unwrap();
    let (mut refused, mut right) = (0, 0);
    for bit in 0..8 * page.len() {
        let (at, flipped) = (bit / 8, page[bit / 8] ^ 1 << (bit % 8));
        file.write_all_at(&[flipped], at as u64).unwrap();
        match ask(&store) {
            Ok(true) => right += 1,
            Ok(false) => panic!("bit {} of byte {at}: a wrong document", bit % 8),
            Err(message) => {
                assert!(!message.is_empty());
                refused += 1;
            }
        }
        file.write_all_at(&page[at..=at], at as u64).unwrap();
    }
    assert_eq!(ask(&store), Ok(true));
    eprintln!("{refused} flips refused, {right} changed no result");
    assert!(refused > 20_000, "too few flips were refused: {refused}");
}

/// Writes page 0 with correct checksums: of the root area, and of the bytes before it.
fn write_sealed(file: &File, mut page: [u8; 4096]) {
    let root = crc32c::crc32c(&page[3072..]);
    page[208..212].copy_from_slice(&root.to_le_bytes());
    let mut head = page[..3072].to_vec();
    head[248..256].fill(0);
    page[252..256].copy_from_slice(&crc32c::crc32c(&head).to_le_bytes());
    file.write_all_at(&page, 0).unwrap();
}

/// Damage that the page's checksums cannot detect: the root was damaged before the page was sealed.
#[test]
fn a_root_whose_pointer_or_length_exceeds_the_object_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (store, file) = store(directory.path());
    let mut page = [0; 4096];
    file.read_exact_at(&mut page, 0).unwrap();
    let words = || (3072..4096).step_by(8);
    let word = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap());
    let info = store.info("a").unwrap();
    let base = info.base_address;
    let inside = |value: u64| value > base && value - base < 1 << 30;
    let pointer = words().find(|&at| inside(word(at))).expect("the vector's pointer");
    let with = |at: usize, value: u64| {
        let mut page = page;
        page[at..at + 8].copy_from_slice(&value.to_le_bytes());
        write_sealed(&file, page);
    };
    with(pointer, word(pointer));
    assert_eq!(ask(&store), Ok(true));
    for value in
        [0, 1, 8, base, base - 8, word(pointer) ^ 1 << 40, word(pointer) + (1 << 30), u64::MAX]
    {
        with(pointer, value);
        assert!(ask(&store).is_err(), "pointer {value:#x}");
    }
    for length in [pointer + 8, pointer + 16] {
        for value in [1 << 20, 1 << 40, u64::MAX, u64::MAX / 2] {
            with(length, value);
            assert!(ask(&store).is_err(), "length {value:#x} at {length}");
        }
    }
    write_sealed(&file, page);
    assert_eq!(ask(&store), Ok(true));
}
