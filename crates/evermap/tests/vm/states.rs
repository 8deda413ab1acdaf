//! States committed inside the machine: numbered, and either complete or absent.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use evermap::{Durability, Error, Mut, PMap, PString, PVec, Persist, Session, Store, WriteOptions};

/// Three views of the same number that agree only in committed states.
#[derive(Persist)]
#[repr(C)]
pub struct State {
    number: u64,
    by_name: PMap<PString, u64>,
    list: PVec<PString>,
    /// A block of words for each number: the object grows every few commits.
    blocks: PVec<PVec<u64>>,
}

/// Promise for one object at the time of a mark: a reopened object has state `floor` or a later
/// one, but none after `ceiling`. Numbers begin with 1; 0 means "not created yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub floor: u64,
    pub ceiling: u64,
}

/// Promise for a store: for the object that is changed in place, and for the one that is replaced
/// each time.
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

/// What the states must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Kills of the process.
    Kill,
    /// Kills of the machine, which lose the contents of its memory.
    PowerCut,
}

/// Flush interval of a session at level `Interval`.
const INTERVAL: Duration = Duration::from_millis(20);
/// After this time, an interval and a flush are over even on a loaded machine.
const INTERVAL_SURELY_OVER: Duration = Duration::from_secs(1);

/// Commits repeatedly, and calls `announce` with the current promise after each commit. Ends when
/// `announce` says so. Starts with an empty directory or continues with an existing store.
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

/// Sessions of every level take turns, some with limits that they reach.
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

/// Runs one session. Returns false if `announce` ended it.
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

/// Reads while the store exists, concurrently with any writer. Each state must be complete and not
/// older than the previous one.
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
            // Pause without a reader, so that the writer applies and resets the log.
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

/// Changes the previous state to state `number`.
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

/// Returns true if all parts agree with the state's number.
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

/// Opens the store after a crash, first for reading if `readers_first`, and judges it by the
/// promise. Then continues with a commit and a close. Returns the number of the state.
pub fn judge(directory: &Path, promise: Promise, readers_first: bool) -> Result<u64, String> {
    let text = |error: Error| error.to_string();
    // An incomplete new store can be created again.
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
    /// Formats a line of output. Its last word distinguishes it from a truncated line.
    pub fn to_line(self) -> String {
        let Promise { state, blob } = self;
        format!("promise {} {} {} {} .", state.floor, state.ceiling, blob.floor, blob.ceiling)
    }

    /// Parses a line of `to_line`. Returns `None` for any other line.
    pub fn of_line(line: &str) -> Option<Promise> {
        let mut words =
            line.trim().strip_prefix("promise ")?.strip_suffix(" .")?.split(' ').map(str::parse);
        let mut bounds =
            || Some(Bounds { floor: words.next()?.ok()?, ceiling: words.next()?.ok()? });
        Some(Promise { state: bounds()?, blob: bounds()? })
    }
}

/// Prints a complete line immediately.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}
