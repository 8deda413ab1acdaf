//! Every kind of damage to every file, and the result of opening the store.
//!
//! The result must be a typed error that names the file, or correct data. It must never be a
//! signal, a panic or a hang, so each open runs in its own process with a time limit.
//!
//! The result is a table in `docs/damage.md`. This test compares the two; `EVERMAP_WRITE_DAMAGE=1`
//! writes the table again.
#![allow(clippy::unwrap_used)]

#[path = "damage/chance.rs"]
mod chance;
mod common;
#[path = "damage/opening.rs"]
mod opening;

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Random, TestStore, copy_store};
use evermap::{PVec, from_iter};
use opening::{ELEMENTS, OBJECT, Outcome, WAYS, open_in_child};

/// Versions of the last commit and of an old copy.
const VERSION_LAST: u64 = 4;
const VERSION_OLD: u64 = 2;

/// How the store's last process ended before the damage.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Closed: the object has no log.
    Closed,
    /// Killed after its last commit: the object has a log.
    Killed,
}

/// A file of the store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Object,
    ObjectLog,
    Catalog,
    CatalogLog,
}

/// Stores in all states that rows start from or take files from.
struct Scenes {
    directory: tempfile::TempDir,
}

impl Scenes {
    fn new() -> Scenes {
        let scenes = Scenes { directory: tempfile::tempdir().unwrap() };
        for store in ["", "other "] {
            let test = TestStore::in_memory();
            let fill = |n: u64| from_iter(std::iter::repeat_n(n, ELEMENTS as usize));
            test.create::<PVec<u64>, _>(OBJECT, fill(1)).unwrap();
            test.create::<PVec<u64>, _>("w", fill(100)).unwrap();
            let mut session = test.write::<PVec<u64>>(OBJECT).unwrap();
            for version in 2..=VERSION_LAST {
                for index in 0..ELEMENTS as usize {
                    session.root_mut().get_mut(index).unwrap().set(version);
                }
                session.commit().unwrap();
                if version == VERSION_OLD {
                    copy_store(&test.path(), &scenes.path(&format!("{store}killed, old")));
                }
            }
            copy_store(&test.path(), &scenes.path(&format!("{store}killed")));
            session.close().unwrap();
            let (path, _directory) = test.close();
            copy_store(&path, &scenes.path(&format!("{store}closed")));
        }
        scenes
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A store to damage.
    fn set(&self, left: Left) -> PathBuf {
        let damaged = self.path("damaged");
        let _ = std::fs::remove_dir_all(&damaged);
        copy_store(&self.path(if left == Left::Closed { "closed" } else { "killed" }), &damaged);
        damaged
    }
}

/// Returns the path of a file of the store.
fn file_of(store: &Path, which: Which) -> PathBuf {
    match which {
        Which::Object => object_named(store, OBJECT),
        Which::ObjectLog => object_named(store, OBJECT).with_extension("log"),
        Which::Catalog => store.join("catalog"),
        Which::CatalogLog => store.join("catalog.log"),
    }
}

/// Returns the file whose superblock has this name.
fn object_named(store: &Path, name: &str) -> PathBuf {
    let entries = std::fs::read_dir(store.join("objects")).unwrap();
    let mut paths = entries.map(|e| e.unwrap().path()).filter(|p| p.extension().is_none());
    let has_name = |path: &PathBuf| {
        std::fs::read(path).unwrap()[256..].starts_with(format!("{name}\0").as_bytes())
    };
    paths.find(has_name).unwrap()
}

/// Kind of damage.
#[derive(Clone, Copy)]
enum Damage {
    Half,
    Empty,
    OneByteLess,
    HeaderRandom,
    HeaderZero,
    /// 4 KiB of random bytes at a position in the file.
    Random(Place),
    /// The file of another store, of this store's other object, or an older version of the file.
    FromOtherStore,
    FromOtherObject,
    Old,
    Removed,
    Directory,
    Symlink,
    Fifo,
    /// Mode 000, opened by a user that is not root.
    NoPermissions,
}

#[derive(Clone, Copy)]
enum Place {
    /// Page 0 of an object or the catalog.
    Superblock,
    Allocator,
    Data,
    /// The table of checksums.
    Checksums,
    /// In the middle of the first or the last record of a log.
    FirstRecord,
    LastRecord,
}

impl Damage {
    fn title(self) -> &'static str {
        match self {
            Damage::Half => "cut to half",
            Damage::Empty => "cut to nothing",
            Damage::OneByteLess => "one byte less",
            Damage::HeaderRandom => "first 64 bytes random",
            Damage::HeaderZero => "first 64 bytes zero",
            Damage::Random(Place::Superblock) => "4 KiB random: superblock",
            Damage::Random(Place::Allocator) => "4 KiB random: allocator metadata",
            Damage::Random(Place::Data) => "4 KiB random: data",
            Damage::Random(Place::Checksums) => "4 KiB random: checksums",
            Damage::Random(Place::FirstRecord) => "4 KiB random: first record",
            Damage::Random(Place::LastRecord) => "4 KiB random: last record",
            Damage::FromOtherStore => "another store's",
            Damage::FromOtherObject => "another object's",
            Damage::Old => "an old copy put back",
            Damage::Removed => "removed",
            Damage::Directory => "a directory instead",
            Damage::Symlink => "a symbolic link instead",
            Damage::Fifo => "a pipe instead",
            Damage::NoPermissions => "permissions 000",
        }
    }

    /// Damages the file. Returns false if that is not possible on this machine.
    fn inflict(self, scenes: &Scenes, store: &Path, left: Left, which: Which) -> bool {
        let file = file_of(store, which);
        let scene = if left == Left::Closed { "closed" } else { "killed" };
        let mut bytes = std::fs::read(&file).unwrap_or_default();
        let mut random = Random::new(bytes.len() as u64);
        match self {
            Damage::Half => bytes.truncate(bytes.len() / 2),
            Damage::Empty => bytes.clear(),
            Damage::OneByteLess => bytes.truncate(bytes.len() - 1),
            Damage::HeaderRandom => random.fill(&mut bytes[..64]),
            Damage::HeaderZero => bytes[..64].fill(0),
            Damage::Random(place) => {
                let at = offset_of(&bytes, place);
                random.fill(&mut bytes[at..at + 4096]);
            }
            Damage::FromOtherStore => {
                bytes =
                    std::fs::read(file_of(&scenes.path(&format!("other {scene}")), which)).unwrap()
            }
            Damage::FromOtherObject => bytes = std::fs::read(object_named(store, "w")).unwrap(),
            Damage::Old => {
                bytes = std::fs::read(file_of(&scenes.path("killed, old"), which)).unwrap()
            }
            Damage::NoPermissions => return give_to_other_user(scenes, store, &file),
            Damage::Removed | Damage::Directory | Damage::Symlink | Damage::Fifo => {
                std::fs::remove_file(&file).unwrap();
                match self {
                    Damage::Directory => std::fs::create_dir(&file).unwrap(),
                    Damage::Symlink => std::os::unix::fs::symlink("/etc/passwd", &file).unwrap(),
                    Damage::Fifo => {
                        let made = Command::new("mkfifo").arg(&file).status().unwrap();
                        assert!(made.success());
                    }
                    _ => {}
                }
                return true;
            }
        }
        std::fs::write(&file, bytes).unwrap();
        true
    }
}

fn word(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
}

/// Returns the file offset of a position, from the description of the format.
fn offset_of(bytes: &[u8], place: Place) -> usize {
    let records = || {
        let is_record = |at: &usize| bytes[*at..].starts_with(b"evR2");
        (8192..bytes.len()).step_by(512).filter(is_record)
    };
    match place {
        Place::Superblock => 0,
        Place::Allocator => 4096,
        Place::Data => word(bytes, 512 + 32),
        Place::Checksums => word(bytes, 512 + 40) - word(bytes, 512),
        Place::FirstRecord => records().next().unwrap() + 80,
        Place::LastRecord => records().next_back().unwrap() + 80,
    }
}

/// Makes another user the owner of the store, with one file that it may not open. Root may open
/// everything.
fn give_to_other_user(scenes: &Scenes, store: &Path, file: &Path) -> bool {
    // SAFETY: the call only returns a number.
    if unsafe { libc::geteuid() } == 0 {
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(scenes.directory.path(), open).unwrap();
        let given = Command::new("chown").args(["-R", "65534:65534"]).arg(store).status().unwrap();
        assert!(given.success());
    }
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o000)).unwrap();
    true
}

/// Required result of opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Must {
    /// A typed error that names the file.
    Err,
    /// The last commit.
    Last,
    /// The last commit or a typed error.
    ErrOrLast,
    /// A commit before the last one: the loss looks like a torn write of a power failure.
    Older,
    /// Opening succeeds: the damaged data is not verified before it is used.
    Opens,
    /// Opening succeeds, or an error names the reason.
    ErrOrOpens,
}

impl Must {
    fn is_met(self, outcome: &Outcome) -> bool {
        let error = matches!(outcome, Outcome::Error(..));
        let last = *outcome == Outcome::Data(VERSION_LAST);
        let opens = last || *outcome == Outcome::WrongData;
        match self {
            Must::Err => error,
            Must::Last => last,
            Must::ErrOrLast => error || last,
            Must::Older => matches!(outcome, Outcome::Data(1..VERSION_LAST)),
            Must::Opens => opens,
            Must::ErrOrOpens => error || opens,
        }
    }
}

/// One row: the scene, the file, the damage, and the required results of reading and writing.
type Row = (Left, Which, Damage, [Must; 4]);

fn rows() -> Vec<Row> {
    use Damage::{
        Directory, Empty, Fifo, FromOtherObject, FromOtherStore, Half, HeaderRandom, HeaderZero,
        NoPermissions, Old, OneByteLess, Removed, Symlink,
    };
    use Left::{Closed, Killed};
    use Must::{Err, ErrOrLast, ErrOrOpens, Last, Older, Opens};
    use Which::{Catalog, CatalogLog, Object, ObjectLog};
    let mut rows = Vec::new();
    let always = [
        Half,
        Empty,
        HeaderRandom,
        HeaderZero,
        FromOtherStore,
        Removed,
        Directory,
        Symlink,
        Fifo,
        NoPermissions,
    ];
    let essential = [
        (Closed, Object),
        (Killed, Object),
        (Killed, ObjectLog),
        (Closed, Catalog),
        (Killed, Catalog),
        (Killed, CatalogLog),
    ];
    for (left, which) in essential {
        for damage in always {
            // The second half of a log may be space written ahead for later records.
            let ahead = which == CatalogLog && matches!(damage, Half);
            rows.push((left, which, damage, [if ahead { ErrOrLast } else { Err }; 4]));
        }
    }
    for (left, which) in [(Closed, Object), (Killed, Object), (Closed, Catalog), (Killed, Catalog)]
    {
        rows.push((left, which, OneByteLess, [Err; 4]));
        rows.push((left, which, Damage::Random(Place::Superblock), [Err; 4]));
        // Data and metadata are verified on request. The log may have newer versions of the damaged
        // lines. The catalog is always verified.
        let metadata = Damage::Random(Place::Allocator);
        if which == Object {
            rows.push((left, which, FromOtherObject, [Err; 4]));
            let data = if left == Killed { ErrOrLast } else { Err };
            rows.push((left, which, Damage::Random(Place::Data), [Opens, Opens, data, data]));
            rows.push((left, which, metadata, [Opens, ErrOrOpens, Err, Err]));
            let sums = Damage::Random(Place::Checksums);
            rows.push((left, which, sums, [Last, ErrOrLast, data, data]));
        }
    }
    rows.push((Killed, Object, Old, [ErrOrLast; 4]));
    rows.push((Killed, ObjectLog, OneByteLess, [Last; 4]));
    rows.push((Killed, ObjectLog, Damage::Random(Place::FirstRecord), [Err; 4]));
    rows.push((Killed, ObjectLog, Damage::Random(Place::LastRecord), [Err; 4]));
    rows.push((Killed, ObjectLog, Old, [Older; 4]));
    rows.push((Closed, ObjectLog, Old, [Last; 4]));
    rows.push((Killed, CatalogLog, OneByteLess, [Last; 4]));
    rows.push((Killed, CatalogLog, Damage::Random(Place::FirstRecord), [Err; 4]));
    rows.push((Killed, CatalogLog, Damage::Random(Place::LastRecord), [Err; 4]));
    // An emptied log has no records: its headers are needed, its second half is not.
    rows.push((Closed, CatalogLog, Empty, [Err; 4]));
    rows.push((Closed, CatalogLog, Half, [Last; 4]));
    rows.push((Closed, CatalogLog, HeaderZero, [ErrOrLast; 4]));
    for left in [Closed, Killed] {
        let data = Damage::Random(Place::Data);
        rows.push((left, Catalog, data, [ErrOrLast; 4]));
    }
    rows.sort_by_key(|row| (row.1 as u8, row.0 as u8));
    rows
}

fn shown(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Data(VERSION_LAST) => "last commit".to_string(),
        Outcome::Data(version) => format!("older commit ({version} of {VERSION_LAST})"),
        Outcome::WrongData => "opens".to_string(),
        Outcome::Error(variant, _) => format!("`{variant}`"),
        Outcome::Signal(signal) => format!("SIGNAL {signal}"),
        Outcome::Panic(_) => "PANIC".to_string(),
        Outcome::Hang => "HANG".to_string(),
    }
}

fn name_of(left: Left, which: Which) -> &'static str {
    match (which, left) {
        (Which::Object, Left::Closed) => "object, closed",
        (Which::Object, Left::Killed) => "object, killed",
        (Which::ObjectLog, Left::Closed) => "object's log, closed",
        (Which::ObjectLog, Left::Killed) => "object's log, killed",
        (Which::Catalog, Left::Closed) => "catalog, closed",
        (Which::Catalog, Left::Killed) => "catalog, killed",
        (Which::CatalogLog, Left::Closed) => "catalog's log, closed",
        (Which::CatalogLog, Left::Killed) => "catalog's log, killed",
    }
}

/// Short description of the results of all ways of opening.
fn cell(outcomes: &[Outcome]) -> String {
    let shown = |n: usize| shown(&outcomes[n]);
    let both = |first: usize| {
        let (read, write) = (shown(first), shown(first + 1));
        if read == write { read } else { format!("{read}; writing: {write}") }
    };
    let (quick, full) = (both(0), both(2));
    if quick == full { quick } else { format!("{quick}; verified: {full}") }
}

/// One line per kind of damage, one column per file.
fn table_of(cells: &[(&'static str, &'static str, String)]) -> String {
    let mut names: Vec<&str> = Vec::new();
    let mut titles: Vec<&str> = Vec::new();
    for (name, title, _) in cells {
        if !names.contains(name) {
            names.push(name);
        }
        if !titles.contains(title) {
            titles.push(title);
        }
    }
    let mut table = format!("| | {} |\n|---{}|\n", names.join(" | "), "|---".repeat(names.len()));
    for title in titles {
        let of = |name: &&str| {
            let cell = cells.iter().find(|cell| cell.0 == *name && cell.1 == title);
            cell.map_or(String::new(), |cell| cell.2.clone())
        };
        let row: Vec<String> = names.iter().map(of).collect();
        writeln!(table, "| {title} | {} |", row.join(" | ")).unwrap();
    }
    table
}

#[test]
fn every_damage_to_every_file_is_an_error_or_harmless() {
    let scenes = Scenes::new();
    let mut cells = Vec::new();
    let mut failures = Vec::new();
    for (left, which, damage, musts) in rows() {
        let (name, title) = (name_of(left, which), damage.title());
        let mut outcomes = Vec::new();
        for (how, must) in WAYS.into_iter().zip(musts) {
            let store = scenes.set(left);
            damage.inflict(&scenes, &store, left, which);
            let root = matches!(damage, Damage::NoPermissions)
                // SAFETY: the call only returns a number.
                && unsafe { libc::geteuid() } == 0;
            let outcome = open_in_child(&store, how, if root { "as nobody" } else { "" });
            if !must.is_met(&outcome) {
                failures.push(format!("{name}, {title}, {how:?}: {outcome:?}, not {must:?}"));
            }
            if let Outcome::Error(variant, text) = &outcome
                && variant != "InvalidFree"
                && !text.contains(store.to_str().unwrap())
            {
                failures.push(format!("{name}, {title}, {how:?}: {text:?} names no file"));
            }
            outcomes.push(outcome);
        }
        cells.push((name, title, cell(&outcomes)));
    }
    let table = table_of(&cells);
    println!("{table}");
    assert!(failures.is_empty(), "{} cells:\n{}", failures.len(), failures.join("\n"));
    compare_with_the_documentation(&table);
}

/// The table in the documentation must match this run's.
fn compare_with_the_documentation(table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/damage.md");
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("SKIPPED: no {}: the crate was packaged without its repository", path.display());
        return;
    };
    let (begin, end) = ("<!-- table: begin -->\n\n", "\n<!-- table: end -->");
    let from = text.find(begin).unwrap() + begin.len();
    let to = text.find(end).unwrap();
    if std::env::var_os("EVERMAP_WRITE_DAMAGE").is_some() {
        std::fs::write(&path, format!("{}{table}{}", &text[..from], &text[to..])).unwrap();
        return;
    }
    assert!(
        text[from..to] == *table,
        "{} is out of date: EVERMAP_WRITE_DAMAGE=1 cargo test -p evermap --test damage",
        path.display()
    );
}
