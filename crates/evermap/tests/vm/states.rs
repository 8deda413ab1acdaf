//! What is committed inside the machine: numbered states, whole or not there.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use evermap::{Durability, Error, Mut, PMap, PString, PVec, Persist, Session, Store, WriteOptions};

/// Three views of the same number: they agree in every commit and only there.
#[derive(Persist)]
#[repr(C)]
pub struct State {
    number: u64,
    by_name: PMap<PString, u64>,
    list: PVec<PString>,
    /// A block of words for each number: the object grows every few commits.
    blocks: PVec<PVec<u64>>,
}

/// What was promised of one object when a mark was written: reopening finds `floor` or a later
/// state, and none after `ceiling`. Numbers begin with 1; 0 is "not made yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub floor: u64,
    pub ceiling: u64,
}

/// What was promised of a store: of the object that is changed in place, and of the one that is
/// replaced by a new one each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    pub state: Bounds,
    pub blob: Bounds,
}

/// Words of one block of a state.
const BLOCK_WORDS: usize = 1_000;
/// Words of the replaced object.
const BLOB_WORDS: u64 = 3_000;
/// Commits of a session before it is closed.
const COMMITS_PER_SESSION: u64 = 23;

/// What the states have to survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Of the process.
    Kill,
    /// Of the machine: what its memory held is gone.
    PowerCut,
}

/// How often a session at level `Interval` flushes.
const INTERVAL: Duration = Duration::from_millis(20);
/// After so long, on whatever loaded machine, an interval and a flush are over.
const INTERVAL_SURELY_OVER: Duration = Duration::from_secs(1);

/// Commits without end, telling `announce` after each what is promised from now on; ends when it
/// says so. Begins with an empty directory or goes on with what is there.
pub fn commit_states(
    directory: &Path,
    end: End,
    announce: &mut dyn FnMut(Promise) -> bool,
) -> Result<(), Error> {
    let mut promise = Promise::default();
    let store = Store::open_or_create(directory)?;
    if store.contains("state")? {
        promise.state.floor = store.read::<State>("state")?.number;
    } else {
        promise.state.ceiling = 1;
        announce(promise);
        let new =
            StateInit { number: 1, by_name: PMap::new(), list: PVec::new(), blocks: PVec::new() };
        store.create::<State, _>("state", new)?;
        promise.state.floor = 1;
    }
    if store.contains("blob")? {
        promise.blob.floor = store.read::<PVec<u64>>("blob")?[0];
    }
    promise.blob.ceiling = promise.blob.floor;
    loop {
        let (durability, options) = kind_of_session(promise.state.floor / COMMITS_PER_SESSION);
        let session = store.write_with::<State>("state", &options)?;
        if !commit_session(session, durability, end, &mut promise, announce)? {
            return Ok(());
        }
        promise.blob.ceiling += 1;
        announce(promise);
        let words: Vec<u64> = (0..BLOB_WORDS).map(|i| promise.blob.ceiling + i).collect();
        store.replace::<PVec<u64>, _>("blob", words)?;
        promise.blob.floor += 1;
    }
}

/// Sessions of every level take turns, some with limits that they meet.
fn kind_of_session(number: u64) -> (Durability, WriteOptions) {
    let options = WriteOptions::new();
    let (durability, options) = match number % 4 {
        0 => (Durability::Commit, options),
        1 => (Durability::Interval(INTERVAL), options.log_bytes_max(24 << 10)),
        2 => (Durability::Commit, options.log_bytes_max(16 << 10).hot_bytes_max(0)),
        _ => (Durability::Close, options.log_full_pages(true)),
    };
    (durability, options.durability(durability))
}

/// One session; false when `announce` ended it.
fn commit_session(
    mut session: Session<State>,
    durability: Durability,
    end: End,
    promise: &mut Promise,
    announce: &mut dyn FnMut(Promise) -> bool,
) -> Result<bool, Error> {
    let survives_at_once = match durability {
        Durability::Commit => true,
        Durability::Interval(_) => end == End::Kill,
        Durability::Close => false,
    };
    let mut committed = promise.state.floor;
    for i in 0..COMMITS_PER_SESSION {
        promise.state.ceiling = committed + 1;
        if !announce(*promise) {
            return Ok(false);
        }
        step(session.root_mut(), committed + 1)?;
        session.commit()?;
        committed += 1;
        if !survives_at_once && i == COMMITS_PER_SESSION / 3 {
            session.sync()?;
            promise.state.floor = committed;
        }
        if matches!(durability, Durability::Interval(_)) && i == COMMITS_PER_SESSION / 2 {
            std::thread::sleep(INTERVAL_SURELY_OVER);
            promise.state.floor = committed;
        }
        if survives_at_once {
            promise.state.floor = committed;
        }
    }
    announce(*promise);
    session.close()?;
    promise.state.floor = committed;
    Ok(true)
}

/// Reads for as long as the store is there, beside whoever writes: each look is at a whole state,
/// none at an older one than the look before.
pub fn read_states(directory: &Path) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let store = Store::open(directory).map_err(text)?;
    let mut seen = 0;
    let mut snapshot = store.read::<State>("state").map_err(text)?;
    for look in 0u64.. {
        check_whole(&snapshot)?;
        if snapshot.number < seen {
            return Err(format!("{seen} was seen, then {}", snapshot.number));
        }
        seen = snapshot.number;
        std::thread::sleep(Duration::from_millis(30));
        snapshot = match look % 3 {
            // Nobody reads for a moment, so that the writer applies and resets the log.
            0 => {
                drop(snapshot);
                std::thread::sleep(Duration::from_millis(30));
                store.read::<State>("state").map_err(text)?
            }
            _ => snapshot.refresh().map_err(text)?,
        };
    }
    Ok(())
}

/// Makes state `number` of the one before it.
fn step(mut root: Mut<'_, State>, number: u64) -> Result<(), Error> {
    let mut state = root.fields();
    *state.number = number;
    let text = format!("number {number}");
    state.by_name.insert(text.as_str(), number)?;
    state.list.push(text.as_str())?;
    state.blocks.push(vec![number; BLOCK_WORDS])?;
    if number.is_multiple_of(3) {
        let old = format!("number {}", number / 3);
        state.by_name.remove(old.as_str());
    }
    if number.is_multiple_of(50) {
        state.list.truncate(10);
    }
    Ok(())
}

/// Is it the state of its number, all of it?
fn check_whole(state: &State) -> Result<(), String> {
    let mut names: Vec<u64> = state.by_name.iter().map(|(_, n)| *n).collect();
    names.sort_unstable();
    let mut model = std::collections::BTreeSet::new();
    let (mut list, mut blocks) = (Vec::new(), Vec::new());
    for n in 2..=state.number {
        model.insert(n);
        list.push(format!("number {n}"));
        if n % 3 == 0 {
            model.remove(&(n / 3));
        }
        if n % 50 == 0 {
            list.truncate(10);
        }
        blocks.push(n);
    }
    if names != model.into_iter().collect::<Vec<_>>() {
        return Err(format!("the map of state {} is another's", state.number));
    }
    if !state.list.iter().map(PString::as_str).eq(list.iter().map(String::as_str)) {
        return Err(format!("the list of state {} is another's", state.number));
    }
    let whole = |(block, n): (&PVec<u64>, &u64)| {
        block.len() == BLOCK_WORDS && block.iter().all(|word| word == n)
    };
    if state.blocks.len() != blocks.len() || !state.blocks.iter().zip(&blocks).all(whole) {
        return Err(format!("the blocks of state {} are another's", state.number));
    }
    Ok(())
}

fn check_bounds(what: &str, found: u64, bounds: Bounds) -> Result<(), String> {
    if found < bounds.floor || found > bounds.ceiling {
        return Err(format!("{what} {found} was found, {bounds:?} was promised"));
    }
    Ok(())
}

/// Opens what a cut left, first for reading if `readers_first`, and holds it against the promise;
/// then goes on with it for a commit and a close. Gives the state that was found.
pub fn judge(directory: &Path, promise: Promise, readers_first: bool) -> Result<u64, String> {
    let text = |error: Error| error.to_string();
    // Whatever a cut left of a store that was being made, making it again works.
    let store = Store::open_or_create(directory).map_err(text)?;
    if store.contains("blob").map_err(text)? {
        let blob = store.read::<PVec<u64>>("blob").map_err(text)?;
        let number = *blob.first().ok_or("an empty blob")?;
        check_bounds("blob", number, promise.blob)?;
        if blob.len() as u64 != BLOB_WORDS || !blob.iter().copied().eq(number..number + BLOB_WORDS)
        {
            return Err(format!("blob {number} is not whole"));
        }
    } else {
        check_bounds("blob", 0, promise.blob)?;
    }
    if !store.contains("state").map_err(text)? {
        check_bounds("state", 0, promise.state)?;
        return Ok(0);
    }
    let mut read = None;
    if readers_first {
        let state = store.read::<State>("state").map_err(text)?;
        check_bounds("state", state.number, promise.state)?;
        check_whole(&state)?;
        read = Some(state.number);
    }
    let mut session = store.write::<State>("state").map_err(text)?;
    let found = session.number;
    check_bounds("state", found, promise.state)?;
    if read.is_some_and(|read| read != found) {
        return Err(format!("a reader saw {read:?}, the writer after it {found}"));
    }
    check_whole(&session)?;
    step(session.root_mut(), found + 1).map_err(text)?;
    session.commit().map_err(text)?;
    session.close().map_err(text)?;
    let state = store.read::<State>("state").map_err(text)?;
    check_bounds("state", state.number, Bounds { floor: found + 1, ceiling: found + 1 })?;
    check_whole(&state)?;
    Ok(found)
}

impl Promise {
    /// For a line of output; its last word tells it from one that a kill cut off.
    pub fn to_line(self) -> String {
        let Promise { state, blob } = self;
        format!("promise {} {} {} {} .", state.floor, state.ceiling, blob.floor, blob.ceiling)
    }

    /// The opposite; `None` for any other line.
    pub fn of_line(line: &str) -> Option<Promise> {
        let mut words =
            line.trim().strip_prefix("promise ")?.strip_suffix(" .")?.split(' ').map(str::parse);
        let mut bounds =
            || Some(Bounds { floor: words.next()?.ok()?, ceiling: words.next()?.ok()? });
        Some(Promise { state: bounds()?, blob: bounds()? })
    }
}

/// Prints a line at once, whole.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}
