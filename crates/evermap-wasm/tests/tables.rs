//! Randomly damaged state files of the host. Each use is a typed error, a guest gets a code, and
//! the host never panics, even if a table was edited with a correct checksum.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};

use common::random::{Random, number};
use common::{DATA, Fixture, key_of, object};
use evermap_wasm::{AccessTable, Code, Error, KeyRing, Level, Sandbox, SandboxOptions};

const ROUNDS: u64 = 300;
const WRITE: u32 = 3;
const DIGITS_MAX: &[&str] =
    &["0", "1", "4096", "18446744073709551615", "18446744073709551616", "-1"];

/// A file that is restored and damaged again in each round.
struct Damaged {
    path: PathBuf,
    whole: Vec<u8>,
}

impl Damaged {
    fn new(path: &Path) -> Damaged {
        Damaged { path: path.to_path_buf(), whole: std::fs::read(path).unwrap() }
    }

    fn put(&self, bytes: &[u8]) {
        // A new file, as the host creates one, so a cached version is not used.
        std::fs::remove_file(&self.path).unwrap();
        std::fs::write(&self.path, bytes).unwrap();
    }

    fn damage(&self, random: &mut Random) {
        let mut bytes = self.whole.clone();
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(4) {
            0 => bytes[at] ^= 1 + random.below(255) as u8,
            1 => bytes.truncate(at),
            2 => {
                let end = bytes.len().min(at + 1 + random.below(64) as usize);
                random.fill(&mut bytes[at..end]);
            }
            _ => {
                let mut noise = vec![0; 1 + random.below(5000) as usize];
                random.fill(&mut noise);
                bytes.extend(noise);
            }
        }
        self.put(&bytes);
    }

    /// Changes a number or a letter, and corrects length and checksum.
    fn edit(&self, random: &mut Random) {
        let text = String::from_utf8(self.whole.clone()).unwrap();
        let (head, body) = text.split_once('\n').unwrap();
        let mut body = body.to_string();
        for _ in 0..=random.below(2) {
            let starts = word_starts(&body);
            let at = starts[random.below(starts.len() as u64) as usize];
            let word = body[at..].find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(0);
            let is_number = body.as_bytes()[at].is_ascii_digit();
            let new = match is_number {
                true => DIGITS_MAX[random.below(DIGITS_MAX.len() as u64) as usize],
                false => ["none", "x", "", "..", "app"][random.below(5) as usize],
            };
            body.replace_range(at..at + word, new);
        }
        let mut words = head.split(' ');
        let (magic, format) = (words.next().unwrap(), words.next().unwrap());
        let checksum = crc32c::crc32c(body.as_bytes());
        self.put(format!("{magic} {format} {} {checksum:08x}\n{body}", body.len()).as_bytes());
    }
}

/// Returns the offsets at which words and numbers begin.
fn word_starts(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    (0..bytes.len())
        .filter(|&at| bytes[at].is_ascii_alphanumeric())
        .filter(|&at| at == 0 || !bytes[at - 1].is_ascii_alphanumeric())
        .collect()
}

fn is_typed(error: &Error) -> bool {
    matches!(error, Error::DamagedTable { .. } | Error::NewerTable { .. })
}

fn for_each_round(what: &str, mut round: impl FnMut(&mut Random)) {
    let mut random = Random::from_environment(what);
    for _ in 0..number("EVERMAP_ROUNDS").unwrap_or(ROUNDS) {
        round(&mut random);
    }
}

#[test]
fn a_damaged_access_table_stops_new_mappings_but_not_existing_ones() {
    let fixture = Fixture::in_memory(SandboxOptions::new());
    let mut guest = fixture.start("app", "");
    let base = guest.map_ok(65536, WRITE);
    let table = Damaged::new(&fixture.store().join("sandbox.access"));
    let id = "app".parse().unwrap();
    let mut stored = 0;
    for_each_round("access table", |random| {
        table.damage(random);
        let entered = fixture.sandbox.application("app".parse().unwrap(), key_of("app"));
        assert!(is_typed(&entered.unwrap_err()));
        let refused = guest.call::<_, i32>("map_other", (65536u32, WRITE)).unwrap();
        assert_eq!(refused, -(Code::Io as i32), "{}", guest.message());
        assert!(!guest.message().contains("sandbox.access"), "the message shows a host path");
        let fresh = AccessTable::of_store(fixture.store());
        assert!(is_typed(&fresh.grant(&id, &object("app:heap"), Level::Write).unwrap_err()));
        assert!(is_typed(&fresh.bindings(&id).unwrap_err()));
        // Its existing mapping still works.
        stored += 1;
        guest.store(base + DATA, stored);
        assert_eq!(guest.commit(base), 1);
    });
    table.put(&table.whole);
    let other: i32 = guest.call("map_other", (65536u32, WRITE)).unwrap();
    assert!(other > 0, "{}", guest.message());
    drop(guest);
    fixture.assert_sound();
}

#[test]
fn edited_access_tables_never_make_the_host_panic() {
    let fixture = Fixture::in_memory(SandboxOptions::new());
    let mut guest = fixture.start("app", "");
    guest.map_ok(65536, WRITE);
    let second: i32 = guest.call("map_other", (65536u32, WRITE)).unwrap();
    assert!(second > 0, "the second object was not mapped");
    drop(guest);
    fixture.application("other");
    let access = fixture.sandbox.access();
    access.grant(&"other".parse().unwrap(), &object("app:heap"), Level::Read).unwrap();
    let table = Damaged::new(&fixture.store().join("sandbox.access"));
    let mut mapped = 0;
    for_each_round("edited access table", |random| {
        table.edit(random);
        let Ok(sandbox) = Sandbox::open(fixture.store()) else { return };
        let entered = sandbox.application("app".parse().unwrap(), key_of("app"));
        let Ok(application) = entered else { return };
        let text = common::module("");
        let module = sandbox.compile("edited", text.as_bytes()).unwrap();
        let Ok(guest) = sandbox.start(&module, &application, &Default::default()) else { return };
        let mut guest = common::Machine(guest);
        for level in [1, 2, WRITE] {
            let result = guest.map(65536, level);
            assert!(result > -16, "{result}");
            mapped += u32::from(result > 0);
            let _: i32 = guest.call("map_other", (8u32 << 20, level)).unwrap();
            if result > 0 {
                let told: i32 = guest.call("stat", (result, 0x5000_1000, 4096)).unwrap();
                assert!(told > 0 || told == -(Code::Io as i32), "{told}");
                assert_eq!(guest.unmap(result as u32), 0);
            }
        }
    });
    assert!(mapped > 0, "no edited table allowed a mapping");
}

#[test]
fn a_damaged_key_ring_is_a_typed_error_and_returns_no_key() {
    let fixture = Fixture::in_memory(SandboxOptions::new());
    let id = "app".parse().unwrap();
    let key = KeyRing::of_store(fixture.store()).enter(fixture.sandbox.access(), &id).unwrap();
    let file = Damaged::new(&fixture.store().join("sandbox.keys"));
    for_each_round("key ring", |random| {
        file.damage(random);
        let ring = KeyRing::of_store(fixture.store());
        for error in [
            ring.find(&id).unwrap_err(),
            ring.enter(fixture.sandbox.access(), &id).unwrap_err(),
            ring.all().unwrap_err(),
        ] {
            assert!(is_typed(&error), "{error}");
        }
        file.edit(random);
        let ring = KeyRing::of_store(fixture.store());
        let edited = ring.find(&id).and_then(|_| ring.all());
        assert!(
            edited.map_err(|e| is_typed(&e) || matches!(e, Error::InvalidName { .. }))
                != Err(false)
        );
    });
    file.put(&file.whole);
    assert_eq!(KeyRing::of_store(fixture.store()).find(&id).unwrap(), Some(key));
}
