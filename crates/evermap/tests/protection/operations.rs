//! Random work on two objects, one of them protected: both must always have the same contents.

use std::collections::BTreeMap;
use std::time::Duration;

use evermap::{Durability, PMap, PString, ProtectedSession, Protection, Session, WriteOptions};

use super::{check_is_clean, store};

type Words = PMap<u64, PString>;

/// Random numbers, reproducible by their seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn seed() -> u64 {
    let given = std::env::var("EVERMAP_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = given.unwrap_or(now.as_nanos() as u64 >> 8);
    println!("EVERMAP_SEED={seed}");
    seed
}

fn options(random: &mut Random) -> WriteOptions {
    let durability = match random.below(3) {
        0 => Durability::Commit,
        1 => Durability::Interval(Duration::from_millis(5)),
        _ => Durability::Close,
    };
    let options = WriteOptions::new().durability(durability);
    // Small limits: frequent checkpoints and evicted pages, or retained pages that the scan
    // write-protects.
    match random.below(3) {
        0 => options.log_bytes_max(64 << 10).hot_bytes_max(0),
        1 => options.checkpoint_after(Duration::ZERO),
        _ => options,
    }
}

/// One step on either object: a number that is added or removed.
#[derive(Clone)]
enum Step {
    Put(u64, String),
    Remove(u64),
}

fn step(random: &mut Random) -> Step {
    let key = random.below(3000);
    match random.below(4) {
        0 => Step::Remove(key),
        1 => Step::Put(key, "x".repeat(random.below(20_000) as usize)),
        _ => Step::Put(key, format!("{key} is {}", random.below(1_000_000))),
    }
}

fn apply(mut words: evermap::Mut<'_, Words>, step: &Step) {
    match step {
        Step::Put(key, text) => drop(words.insert(*key, text.as_str()).unwrap()),
        Step::Remove(key) => drop(words.remove(key)),
    }
}

fn contents(words: &Words) -> BTreeMap<u64, String> {
    words.iter().map(|(key, text)| (*key, text.as_str().to_string())).collect()
}

struct Pair {
    plain: Session<Words>,
    protected: ProtectedSession<Words>,
}

impl Pair {
    fn both(&mut self, random: &mut Random) {
        let steps: Vec<Step> = (0..1 + random.below(60)).map(|_| step(random)).collect();
        steps.iter().for_each(|step| apply(self.plain.root_mut(), step));
        if random.below(2) == 0 {
            let mut scope = self.protected.scope().unwrap();
            steps.iter().for_each(|step| apply(scope.root_mut(), step));
            return;
        }
        for step in &steps {
            apply(self.protected.scope().unwrap().root_mut(), step);
        }
    }
}

pub fn same_contents(protection: Protection) {
    let mut random = Random(seed());
    let (directory, store) = store();
    for name in ["plain", "protected"] {
        store.create::<Words, _>(name, Words::new()).unwrap();
    }
    for _ in 0..6 {
        let options = options(&mut random);
        let plain = store.write_with::<Words>("plain", &options).unwrap();
        let protected = store.write_with::<Words>("protected", &options).unwrap();
        let mut pair = Pair { plain, protected: protected.protect(protection).unwrap() };
        for _ in 0..25 {
            pair.both(&mut random);
            match random.below(8) {
                0 => {
                    pair.plain.rollback().unwrap();
                    pair.protected.rollback().unwrap();
                }
                1 => {
                    assert_eq!(
                        pair.plain.checkpoint().unwrap(),
                        pair.protected.checkpoint().unwrap()
                    );
                }
                2 if random.below(4) == 0 => {
                    assert_eq!(pair.plain.shrink().unwrap(), pair.protected.shrink().unwrap());
                }
                2 => {}
                _ => {
                    assert_eq!(pair.plain.commit().unwrap(), pair.protected.commit().unwrap());
                    assert_eq!(pair.plain.sequence(), pair.protected.sequence());
                }
            }
            assert_eq!(contents(&pair.plain), contents(&pair.protected));
        }
        pair.plain.close().unwrap();
        pair.protected.close().unwrap();
        let (plain, protected) = (store.read::<Words>("plain"), store.read::<Words>("protected"));
        assert_eq!(contents(&plain.unwrap()), contents(&protected.unwrap()));
    }
    drop(store);
    check_is_clean(&directory.path().join("store"));
}
