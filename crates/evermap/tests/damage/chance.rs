//! Random damage from a seed: flipped bits and blocks of noise in verified data, and damage that
//! happens while the store is opened.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evermap::{PVec, Store};

use crate::common::{Random, argument, child, copy_store};
use crate::opening::{How, OBJECT, WAYS};
use crate::{Left, Scenes, VERSION_LAST, Which, file_of};

/// Number of damaged stores; each is opened in all ways.
const STORES: u64 = 800;
/// Number of dead processes after which the test gives up. All are reported.
const DEATHS_MAX: usize = 5;
/// Seconds after which a store counts as hung.
const PATIENCE_SECONDS: u32 = 20;

/// Damages one file of the store in data that is verified when it is opened. Describes the damage.
fn random_damage(store: &Path, verified: bool, random: &mut Random) -> String {
    let files = [Which::Object, Which::ObjectLog, Which::Catalog, Which::CatalogLog];
    let which = files[random.below(4) as usize];
    let file = file_of(store, which);
    let Ok(mut bytes) = std::fs::read(&file) else { return "nothing".to_string() };
    // In a log, mostly the part in use.
    let area = match which {
        Which::Object | Which::Catalog if verified => bytes.len() as u64,
        Which::Object | Which::Catalog => 3072,
        _ if random.one_in(4) => bytes.len() as u64,
        _ => bytes.iter().rposition(|b| *b != 0).map_or(1, |last| last as u64 + 1),
    };
    let at = random.below(area) as usize;
    let what = match random.below(4) {
        0 => {
            let length = (random.below(4096) + 1).min(area - at as u64) as usize;
            random.fill(&mut bytes[at..at + length]);
            format!("{length} random bytes from {at}")
        }
        1 => {
            bytes.truncate(at);
            format!("cut to {at}")
        }
        2 => {
            // A number of the format, set to an end of its range.
            let at = (at & !7).min(bytes.len() - 8);
            let value = [0, 1, u64::MAX, u64::MAX - 4095, 1 << 45][random.below(5) as usize];
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            format!("{value:#x} at {at}")
        }
        _ => {
            let flips = random.below(4) + 1;
            for _ in 0..flips {
                bytes[random.below(area) as usize] ^= 1 << random.below(8);
            }
            format!("{flips} flipped bits")
        }
    };
    std::fs::write(&file, bytes).unwrap();
    format!("{}: {what}", file.display())
}

fn put_back(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    copy_store(from, to);
}

#[test]
#[ignore = "a child of the damage tests"]
fn child_opens_damaged_stores() {
    let (Some(scenes), Some(seed), Some(first)) = (argument(0), argument(1), argument(2)) else {
        return;
    };
    let scenes = Path::new(&scenes);
    let seed: u64 = seed.parse().unwrap();
    let memory = Path::new("/dev/shm");
    let place = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap();
    println!("\n@place {}", place.path().display());
    for number in first.parse().unwrap()..STORES {
        let scene = scenes.join(if number % 3 == 0 { "closed" } else { "killed" });
        let store = place.path().join("store");
        for how in WAYS {
            put_back(&scene, &store);
            let verified = matches!(how, How::ReadVerified | How::WriteVerified);
            let mut random = Random::new(seed ^ (number << 20));
            let what = random_damage(&store, verified, &mut random);
            println!("@store {number} {what}");
            // SAFETY: only ends this process, if it hangs.
            unsafe { libc::alarm(PATIENCE_SECONDS) };
            match how.open(&store) {
                Ok(Some(VERSION_LAST)) => println!("@came last commit"),
                Ok(Some(version @ 1..VERSION_LAST)) => println!("@came older commit, {version}"),
                Ok(other) => panic!("{what}: data that was never committed: {other:?}"),
                Err(error) => println!("@came {}", variant_of(&error)),
            }
        }
    }
    println!("@end ");
}

fn variant_of(error: &evermap::Error) -> String {
    let debug = format!("{error:?}");
    debug.split([' ', '(', '{']).next().unwrap_or_default().to_string()
}

#[test]
fn random_damage_never_kills_a_process() {
    let scenes = Scenes::new();
    let seed = Random::from_environment("damage by chance").number();
    let mut came: BTreeMap<String, u64> = BTreeMap::new();
    let mut deaths = Vec::new();
    let mut next = 0;
    while next < STORES && deaths.len() < DEATHS_MAX {
        let path = scenes.path("");
        let arguments = [path.to_str().unwrap(), &seed.to_string(), &next.to_string()];
        let mut process = child("chance::child_opens_damaged_stores", &arguments);
        let mut doing = String::new();
        let mut place = PathBuf::new();
        for line in BufReader::new(process.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            match line.strip_prefix('@').and_then(|line| line.split_once(' ')) {
                Some(("place", path)) => place = PathBuf::from(path),
                Some(("store", what)) => {
                    next = what.split(' ').next().unwrap().parse::<u64>().unwrap() + 1;
                    doing = what.to_string();
                }
                Some(("came", what)) => *came.entry(what.to_string()).or_default() += 1,
                Some(("end", _)) => next = STORES,
                _ => {}
            }
        }
        let status = process.wait().unwrap();
        if !status.success() {
            let _ = std::fs::remove_dir_all(place);
            deaths.push(format!("store {doing}: {status} (signal {:?})", status.signal()));
        }
    }
    for (what, times) in &came {
        println!("  {times:5}  {what}");
    }
    assert!(deaths.is_empty(), "{}", deaths.join("\n"));
    assert_eq!(came.values().sum::<u64>(), WAYS.len() as u64 * STORES);
    assert!(came["Damaged"] > STORES / 10 && came["last commit"] > STORES / 100);
}

/// Opens the store repeatedly and prints the results as letters.
#[test]
#[ignore = "a child of the damage tests"]
fn child_opens_repeatedly() {
    let Some(path) = argument(0) else { return };
    println!("\n@begin");
    loop {
        // Elements are not read: a mapped file must not be truncated.
        let opened = Store::open(&path).and_then(|store| store.read::<PVec<u64>>(OBJECT).map(drop));
        match opened {
            Ok(()) => println!("@opened"),
            Err(error) => println!("@{}", variant_of(&error)),
        }
    }
}

#[test]
fn opening_a_store_during_damage_succeeds_or_is_an_error() {
    let scenes = Scenes::new();
    let mut random = Random::from_environment("damage while opening");
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (left, which) in [(Left::Closed, Which::Object), (Left::Killed, Which::ObjectLog)] {
        let store = scenes.set(left);
        let file = file_of(&store, which);
        let whole = std::fs::read(&file).unwrap();
        let mut process = child("chance::child_opens_repeatedly", &[store.to_str().unwrap()]);
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let reader = std::thread::spawn(move || {
            let mut said = Vec::new();
            output.read_to_end(&mut said).map(|_| said)
        });
        let target = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(400) {
            if random.one_in(2) {
                target.set_len(random.below(whole.len() as u64)).unwrap();
            } else {
                let mut noise = [0; 512];
                random.fill(&mut noise);
                target.write_all_at(&noise, random.below(16) * 512).unwrap();
            }
            std::thread::sleep(Duration::from_micros(random.below(300)));
            target.write_all_at(&whole, 0).unwrap();
            std::thread::sleep(Duration::from_micros(random.below(300)));
        }
        process.kill().unwrap();
        let status = process.wait().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{file:?}: it ended by itself: {status}");
        let said = String::from_utf8_lossy(&reader.join().unwrap().unwrap()).into_owned();
        for word in said.lines().filter_map(|line| line.strip_prefix('@')) {
            *counts.entry(word.to_string()).or_default() += 1;
        }
    }
    for (what, times) in &counts {
        println!("  {times:5}  {what}");
    }
    let errors: u64 =
        counts.iter().filter(|(k, _)| *k != "opened" && *k != "begin").map(|c| c.1).sum();
    assert!(counts["opened"] > 10 && errors > 10, "{counts:?}");
}
