//! Addresses of new stores: they never overlap another store in the arena registry, whichever
//! process created it. Creation works whatever the state of the registry.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{Random, argument, child, child_command};
use evermap::{Error, Options, PVec, Store, Window, from_iter, tools};

const GIB: u64 = 1 << 30;
/// Below the default window, and separate for each test, because tests run concurrently in one
/// process.
const WINDOWS: u64 = 0x1000_0000_0000;
static WINDOW: AtomicU64 = AtomicU64::new(0);

/// A directory for stores, with its own window and registry.
struct Place {
    directory: tempfile::TempDir,
    window: Window,
}

impl Place {
    /// Creates a window with room for this many arenas of 1 GiB.
    fn of(places: u64) -> Place {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let base = WINDOWS + WINDOW.fetch_add(1, Ordering::Relaxed) * 1024 * GIB;
        Place { directory, window: Window::new(base, base + places * GIB).unwrap() }
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }

    fn registry(&self) -> PathBuf {
        self.path("state/arenas")
    }

    fn options(&self) -> Options {
        self.options_with(Some(self.registry()))
    }

    fn options_with(&self, registry: Option<PathBuf>) -> Options {
        Options::new().window(self.window).arena_bytes(GIB).arena_registry(registry)
    }

    /// Creates a store, closes it, and returns its base.
    fn make(&self, name: impl AsRef<Path>) -> u64 {
        let path = self.path(name);
        drop(self.options().create_new(&path).unwrap());
        base_of(&path)
    }

    /// A process that creates the stores `first..end`.
    fn child_creates(&self, first: u64, end: u64) -> Child {
        let numbers = [self.window.base(), self.window.end(), first, end].map(|n| n.to_string());
        let directory = self.directory.path().to_str().unwrap();
        child(
            "child_creates_stores",
            &[&[directory], &numbers.each_ref().map(String::as_str)[..]].concat(),
        )
    }

    /// Returns the bases of the existing stores.
    fn bases(&self) -> Vec<u64> {
        let entries = std::fs::read_dir(self.directory.path()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut bases: Vec<u64> =
            paths.filter(|path| path.join("catalog").exists()).map(|path| base_of(&path)).collect();
        bases.sort_unstable();
        bases
    }

    fn assert_apart(&self, stores: usize) {
        let bases = self.bases();
        assert_eq!(bases.len(), stores);
        assert!(bases.windows(2).all(|two| two[0] + GIB <= two[1]), "{bases:x?}");
        assert!(bases.iter().all(|base| self.window.contains(*base, GIB)));
    }

    /// Returns the lines of the registry after its heading.
    fn notes(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.registry()).unwrap();
        text.lines().skip(1).map(str::to_string).collect()
    }
}

/// Reads the arena's base from the catalog's superblock.
fn base_of(store: &Path) -> u64 {
    let mut base = [0; 8];
    std::fs::File::open(store.join("catalog")).unwrap().read_exact_at(&mut base, 144).unwrap();
    u64::from_le_bytes(base)
}

fn succeeds(mut child: Child) {
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(child.wait().unwrap().success(), "{output}");
}

/// Arguments of a child: the options and directory of its place, and two numbers.
fn given() -> Option<(Options, PathBuf, [u64; 2])> {
    let directory = PathBuf::from(argument(0)?);
    let [base, end, first, last] = [1, 2, 3, 4].map(|n| argument(n).unwrap().parse().unwrap());
    let options = Options::new().window(Window::new(base, end).unwrap()).arena_bytes(GIB);
    Some((options.arena_registry(Some(directory.join("state/arenas"))), directory, [first, last]))
}

#[test]
#[ignore = "a child"]
fn child_creates_stores() {
    let Some((options, directory, [first, end])) = given() else { return };
    println!("@begins");
    for number in first..end {
        drop(options.create_new(directory.join(format!("store {number}"))).unwrap());
    }
}

#[test]
fn stores_created_in_turn_by_several_processes_never_overlap() {
    let place = Place::of(320);
    for round in 0..4 {
        succeeds(place.child_creates(round * 75, (round + 1) * 75));
    }
    place.assert_apart(300);
}

#[test]
fn stores_created_concurrently_by_several_processes_never_overlap() {
    let place = Place::of(320);
    let children: Vec<Child> = (0..4).map(|n| place.child_creates(n * 75, (n + 1) * 75)).collect();
    children.into_iter().for_each(succeeds);
    place.assert_apart(300);
}

#[test]
fn addresses_of_removed_stores_are_reused_and_no_others() {
    let place = Place::of(40);
    succeeds(place.child_creates(0, 40));
    for round in 0..6 {
        // Removing ten stores makes room for ten others.
        for number in round * 10..(round + 1) * 10 {
            std::fs::remove_dir_all(place.path(format!("store {number}"))).unwrap();
        }
        succeeds(place.child_creates(40 + round * 10, 50 + round * 10));
        place.assert_apart(40);
    }
    assert_eq!(place.notes().len(), 40, "notes of removed stores must be removed");
}

#[test]
fn recreating_a_store_in_its_directory_removes_the_old_note() {
    let place = Place::of(1024);
    place.make("other");
    for _ in 0..5 {
        place.make("store");
        std::fs::remove_dir_all(place.path("store")).unwrap();
    }
    let base = place.make("store");
    let notes = place.notes();
    assert_eq!(notes.len(), 2);
    let path = place.path("store");
    assert_eq!(notes[1], format!("{base:#x} {GIB:#x} {}", path.display()));
}

#[test]
fn a_store_has_one_path_in_the_registry_however_it_is_named() {
    let place = Place::of(1024);
    std::fs::create_dir(place.path("real")).unwrap();
    std::os::unix::fs::symlink("real", place.path("link")).unwrap();
    for name in ["real/../real//store", "link/store", "real/./store"] {
        let base = place.make(name);
        let path = place.path("real").canonicalize().unwrap().join("store");
        assert_eq!(place.notes(), [format!("{base:#x} {GIB:#x} {}", path.display())], "{name}");
        std::fs::remove_dir_all(path).unwrap();
    }
}

#[test]
fn a_store_with_any_name_keeps_its_addresses() {
    let place = Place::of(2);
    let odd = std::ffi::OsStr::from_bytes(b"a\nname % with\xff\ttoo much");
    for round in 0..8 {
        let base = place.make(odd);
        succeeds(place.child_creates(round, round + 1));
        let other = place.path(format!("store {round}"));
        assert_ne!(base_of(&other), base);
        std::fs::remove_dir_all(other).unwrap();
        std::fs::remove_dir_all(place.path(odd)).unwrap();
    }
}

#[test]
fn a_second_arena_of_a_store_overlaps_no_other_store() {
    let place = Place::of(8);
    succeeds(place.child_creates(0, 6));
    let path = place.path("full");
    let store = place.options().create_new(&path).unwrap();
    // Large in addresses, not in bytes.
    for n in 0..40u64 {
        let mut batch = store.batch().unwrap();
        let name = format!("object {n}");
        batch.replace_sized::<PVec<u64>, _>(&name, from_iter(0..n), 40 << 20).unwrap();
        batch.commit().unwrap();
    }
    let mut arenas = place.bases();
    let second = place.notes().iter().rev().find(|line| line.ends_with("/full")).unwrap().clone();
    let base = second.split(' ').next().unwrap().trim_start_matches("0x").to_string();
    arenas.push(u64::from_str_radix(&base, 16).unwrap());
    arenas.sort_unstable();
    arenas.dedup();
    assert_eq!(arenas.len(), 8, "{arenas:x?}");
    let regions = |n: u64| store.info(&format!("object {n}")).unwrap().regions;
    let at = arenas
        .iter()
        .position(|arena| regions(39)[0].0 >= *arena && regions(39)[0].0 < arena + GIB);
    assert_eq!(Some(format!("{:x}", arenas[at.unwrap()])), Some(base));
}

#[test]
fn a_full_window_can_be_reused_until_all_its_stores_are_open() {
    let place = Place::of(4);
    let mut stores: Vec<PathBuf> = (0..4).map(|n| place.path(format!("store {n}"))).collect();
    stores.iter().for_each(|path| drop(place.options().create_new(path).unwrap()));
    place.assert_apart(4);
    let fifth = place.path("fifth");
    drop(place.options().create_new(&fifth).unwrap());
    assert!(place.window.contains(base_of(&fifth), GIB));
    // Open stores never overlap.
    stores.remove(0);
    let open: Vec<Store> = stores.iter().map(|path| Store::open(path).unwrap()).collect();
    let sixth = place.options().create_new(place.path("sixth")).unwrap();
    let error = place.options().create_new(place.path("seventh")).unwrap_err();
    assert!(matches!(error, Error::OutOfAddresses { .. }), "{error}");
    drop((open, sixth));
}

#[test]
fn the_only_addresses_that_are_not_in_use_here_are_found() {
    let place = Place::of(320);
    succeeds(place.child_creates(0, 319));
    let options = place.options_with(None);
    let open = |number| options.open(place.path(format!("store {number}"))).unwrap();
    let open: Vec<Store> = (0..319).map(open).collect();
    let last = options.create_new(place.path("last")).unwrap();
    place.assert_apart(320);
    drop((open, last));
}

#[test]
fn without_a_registry_stores_of_one_process_do_not_overlap() {
    let place = Place::of(12);
    for number in 0..12 {
        let options = place.options_with(None);
        drop(options.create_new(place.path(format!("store {number}"))).unwrap());
    }
    place.assert_apart(12);
    assert!(!place.registry().exists());
}

#[test]
fn creation_works_with_a_registry_in_any_state() {
    let long = "0x1000 0x1000 /nowhere\n".repeat(100_000);
    let header = "evermap arenas 1\n";
    let states: Vec<(&str, Vec<u8>, bool)> = vec![
        ("empty", b"".to_vec(), true),
        ("zeros", vec![0; 5000], true),
        ("heading only", header.into(), true),
        ("torn note", format!("{header}0x1000 0x10").into(), true),
        ("noise", [header.as_bytes(), &[0xff; 5000]].concat(), true),
        ("long", (header.to_string() + &long).into(), true),
        ("long noise", [header.as_bytes(), &vec![b'x'; 3 << 20]].concat(), true),
        ("no space", format!("{header}{:#x} {:#x} /dev", 0, u64::MAX).into(), true),
        ("another's", b"dear diary\n".to_vec(), false),
        ("newer", b"evermap arenas 2\n".to_vec(), false),
    ];
    for (state, contents, is_used) in states {
        let place = Place::of(64);
        std::fs::create_dir(place.path("state")).unwrap();
        std::fs::write(place.registry(), &contents).unwrap();
        let base = place.make("store");
        let now = std::fs::read(place.registry()).unwrap();
        if is_used {
            let line = format!("\n{base:#x} {GIB:#x} {}\n", place.path("store").display());
            assert!(now.starts_with(header.as_bytes()), "{state}");
            assert!(now.ends_with(line.as_bytes()), "{state}");
            assert!(now.len() < 1 << 20, "{state}");
        } else {
            assert_eq!(now, contents, "{state}: the file must not be changed");
        }
    }
}

#[test]
fn creation_works_without_access_to_the_registry() {
    let place = Place::of(64);
    std::fs::create_dir_all(place.path("directory/arenas")).unwrap();
    std::fs::create_dir_all(place.path("locked/arenas.lock")).unwrap();
    std::fs::create_dir_all(place.path("replaced/arenas.new")).unwrap();
    std::fs::write(place.path("file"), "").unwrap();
    std::os::unix::fs::symlink(place.path("file"), place.path("link")).unwrap();
    let nowhere = [
        place.path("directory/arenas"),
        place.path("locked/arenas"),
        place.path("replaced/arenas"),
        place.path("file/below/arenas"),
        place.path("link"),
        place.path("name-".repeat(60)),
        "/proc/self/evermap/arenas".into(),
        "".into(),
        "/".into(),
    ];
    for (number, registry) in nowhere.into_iter().enumerate() {
        let path = place.path(format!("store {number}"));
        drop(place.options_with(Some(registry)).create_new(path).unwrap());
    }
    place.assert_apart(9);
    assert_eq!(std::fs::read(place.path("file")).unwrap(), b"", "a link is not followed");
}

#[test]
#[ignore = "a child"]
fn child_holds_the_registry() {
    let Some(path) = argument(0) else { return };
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 1,
        l_pid: 0,
    };
    use std::os::fd::AsRawFd;
    // SAFETY: the file is open, and the lock is valid.
    let got = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &mut lock) };
    assert_eq!(got, 0);
    println!("@held");
    std::thread::sleep(Duration::from_secs(600));
}

/// Waits for a mark that a child prints.
fn wait_for(child: &mut Child, mark: &str) {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with(mark)), "the child did not print {mark}");
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert!(status.signal() == Some(libc::SIGKILL) || status.success());
}

#[test]
fn creation_does_not_wait_long_for_the_registry_and_a_killed_holder_releases_it() {
    let place = Place::of(64);
    place.make("first");
    let lock = place.path("state/arenas.lock");
    let mut holder = child("child_holds_the_registry", &[lock.to_str().unwrap()]);
    wait_for(&mut holder, "@held");
    place.make("second");
    assert_eq!(place.notes().len(), 1, "a locked registry must not be written");
    kill(holder);
    place.make("third");
    assert_eq!(place.notes().len(), 2);
    place.assert_apart(3);
}

#[test]
#[ignore = "a child"]
fn child_creates_and_removes_stores() {
    let Some((options, directory, [number, _])) = given() else { return };
    println!("@begins");
    for round in 0.. {
        // A new name appends a note; an existing name rewrites all notes.
        let path = directory.join(format!("store {number}-{}", round % 3));
        drop(options.create_new(&path).unwrap());
        if round >= 2 {
            std::fs::remove_dir_all(directory.join(format!("store {number}-{}", (round + 1) % 3)))
                .unwrap();
        }
    }
}

#[test]
fn kills_at_any_moment_leave_a_usable_registry() {
    let mut random = Random::from_environment("registry kills");
    let place = Place::of(512);
    for round in 0..40u64 {
        let numbers =
            [place.window.base(), place.window.end(), round, 0].map(|number| number.to_string());
        let directory = place.directory.path().to_str().unwrap();
        let arguments = [&[directory], &numbers.each_ref().map(String::as_str)[..]].concat();
        let mut process = child("child_creates_and_removes_stores", &arguments);
        wait_for(&mut process, "@begins");
        std::thread::sleep(Duration::from_micros(random.below(8000)));
        kill(process);
        let name = format!("after {round}");
        let base = place.make(&name);
        let text = std::fs::read_to_string(place.registry()).unwrap();
        assert!(text.starts_with("evermap arenas 1\n0x"), "{text}");
        let note = format!("{base:#x} {GIB:#x} {}", place.path(&name).display());
        // The path has a space, which a note must not have.
        assert!(text.ends_with(&format!("{}\n", note.replace("after ", "after%20"))), "{text}");
    }
    let stores = place.bases().len();
    println!("{stores} stores were left");
    place.assert_apart(stores);
}

#[test]
#[ignore = "a child"]
fn child_creates_a_store_with_default_options() {
    let Some(path) = argument(0) else { return };
    drop(Store::create_new(path).unwrap());
}

#[test]
fn the_users_registry_is_private_and_in_the_state_directory() {
    let place = Place::of(1);
    let (state, home) = (place.path("a/state"), place.path("home"));
    let environments = [
        (Some(state.clone()), Some(home.clone()), Some(state.join("evermap/arenas"))),
        (None, Some(home.clone()), Some(home.join(".local/state/evermap/arenas"))),
        (Some("relative".into()), None, None),
        (None, None, None),
    ];
    for (number, (state, home, registry)) in environments.into_iter().enumerate() {
        let path = place.path(format!("store {number}"));
        let mut command =
            child_command("child_creates_a_store_with_default_options", &[path.to_str().unwrap()]);
        command.current_dir(place.directory.path()).env_remove("XDG_STATE_HOME").env_remove("HOME");
        command.envs(state.map(|path| ("XDG_STATE_HOME", path)));
        command.envs(home.map(|path| ("HOME", path)));
        succeeds(command.spawn().unwrap());
        assert!(path.join("catalog").exists());
        let Some(registry) = registry else { continue };
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&registry), 0o600);
        assert_eq!(mode(registry.parent().unwrap()), 0o700);
        let text = std::fs::read_to_string(&registry).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
    }
    assert!(!place.path("relative").exists());
}

#[test]
fn a_restored_store_is_added_to_the_users_registry() {
    let place = Place::of(2);
    let (path, copy) = (place.path("store"), place.path("copy"));
    let base = place.make("store");
    tools::backup(&path, &copy, &tools::BackupOptions::new()).unwrap();
    let state = place.path("users-state");
    let to = place.path("restored");
    let arguments = [copy.to_str().unwrap(), to.to_str().unwrap()];
    let mut command = child_command("child_restores", &arguments);
    succeeds(command.env("XDG_STATE_HOME", &state).spawn().unwrap());
    let text = std::fs::read_to_string(state.join("evermap/arenas")).unwrap();
    assert!(text.ends_with(&format!("{base:#x} {GIB:#x} {}\n", to.display())), "{text}");
}

#[test]
#[ignore = "a child"]
fn child_restores() {
    let (Some(from), Some(to)) = (argument(0), argument(1)) else { return };
    tools::restore(from, to, false, &tools::BackupOptions::new()).unwrap();
}
