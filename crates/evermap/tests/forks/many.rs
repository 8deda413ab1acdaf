//! Many children of a parent that is the committing writer, and programs that it starts.

use std::ffi::CStr;
use std::ptr::{NonNull, null, null_mut};

use evermap::{Error, RawSession, Store, WriteOptions};

use crate::common::{TestStore, argument};
use crate::process::{Numbers, Way, count, fork, run, succeeds};

const WORDS: usize = 4000;
/// Index of the counter of the parent's commits.
const COMMITS: usize = 0;
const AT_A_TIME: u64 = 50;

fn words<'a>(block: NonNull<u8>) -> &'a mut [u64] {
    // SAFETY: the block has this many words, and only this test uses it.
    unsafe { std::slice::from_raw_parts_mut(block.as_ptr().cast(), WORDS) }
}

fn are(block: NonNull<u8>, expected: u64) -> bool {
    words(block).iter().all(|word| *word == expected)
}

fn open(store: &Store) -> (RawSession, NonNull<u8>) {
    store.create_raw("memory").unwrap();
    let options = WriteOptions::new().log_bytes_max(256 << 10);
    let mut session = store.write_raw_with("memory", &options).unwrap();
    let block = session.heap().allocate(8 * WORDS, 8).unwrap();
    words(block).fill(0);
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(block), 8, [0; 16], "words") }.unwrap();
    session.commit().unwrap();
    (session, block)
}

fn arguments() -> Option<(Store, Numbers)> {
    let (path, shared) = (argument(0)?, argument(1)?);
    Some((Store::open(path).unwrap(), Numbers::new(shared.as_ref())))
}

#[test]
#[ignore = "a part of another test"]
fn role_writer_that_forks() {
    let Some((store, numbers)) = arguments() else { return };
    let (mut session, block) = open(&store);
    let (mut made, mut state, count) = (0, 0, count());
    while made < count {
        let mut gained = Vec::new();
        let children: Vec<i32> = (0..AT_A_TIME.min(count - made))
            .map(|number| {
                state += 1;
                words(block).fill(state);
                // Sometimes there is memory that no commit contains.
                if number % 8 == 0 {
                    gained.push(session.heap().allocate(8 * WORDS, 8).unwrap());
                }
                gained.iter().for_each(|block| words(*block).fill(state));
                let holds = |state| are(block, state) && gained.iter().all(|b| are(*b, state));
                let child = fork(Way::Fork, || {
                    holds(state)
                        && numbers.reaches(COMMITS, state + 1)
                        && holds(state)
                        && matches!(session.commit(), Err(Error::Forked { .. }))
                });
                assert!(session.commit().unwrap());
                session.checkpoint().unwrap();
                numbers.set(COMMITS, state);
                child
            })
            .collect();
        made += children.len() as u64;
        // For the children that were started last.
        for _ in 0..2 {
            state += 1;
            words(block).fill(state);
            gained.iter().for_each(|block| words(*block).fill(state));
            session.commit().unwrap();
            numbers.set(COMMITS, state);
        }
        children.into_iter().for_each(succeeds);
        for block in gained {
            // SAFETY: allocated above, and not used after.
            unsafe { session.heap().try_free(block) }.unwrap();
        }
        assert!(session.commit().unwrap());
        assert!(session.checkpoint().unwrap(), "no child is left that reads");
    }
    println!("\n{made} children");
    session.close().unwrap();
}

fn with_store(role: &str) {
    let test = TestStore::in_memory();
    let shared = test.directory.path().join("numbers");
    let said =
        run(&format!("many::{role}"), &[test.path().to_str().unwrap(), shared.to_str().unwrap()]);
    assert!(said.contains(&format!("{} children", count())), "{said}");
    let report = evermap::tools::check(test.path(), &evermap::tools::CheckOptions::new()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn children_of_a_committing_writer_keep_the_memory_of_the_fork() {
    with_store("role_writer_that_forks");
}

/// Starts a program with arguments that are in an object.
fn start_program(number: u64, arguments: &[*const libc::c_char]) -> i32 {
    // `test A = B` ends with 0 if both arguments are equal.
    const PROGRAM: &CStr = c"/usr/bin/test";
    match number % 3 {
        0 => {
            let mut child = 0;
            // SAFETY: the arguments end with a null pointer; there are no actions and attributes.
            let failed = unsafe {
                libc::posix_spawn(
                    &raw mut child,
                    PROGRAM.as_ptr(),
                    null(),
                    null(),
                    arguments.as_ptr().cast(),
                    [null_mut()].as_ptr(),
                )
            };
            assert_eq!(failed, 0, "{}", std::io::Error::from_raw_os_error(failed));
            child
        }
        1 => fork(Way::Fork, || {
            // SAFETY: as above; it returns only if it fails.
            unsafe { libc::execv(PROGRAM.as_ptr(), arguments.as_ptr()) };
            false
        }),
        _ => {
            #[allow(deprecated, reason = "programs use it, and it shares the memory")]
            // SAFETY: the child calls only `execv` and `_exit`.
            let child = unsafe { libc::vfork() };
            if child == 0 {
                // SAFETY: as above.
                unsafe {
                    libc::execv(PROGRAM.as_ptr(), arguments.as_ptr());
                    libc::_exit(9);
                }
            }
            child
        }
    }
}

#[test]
#[ignore = "a part of another test"]
fn role_writer_that_starts_programs() {
    let Some((store, _)) = arguments() else { return };
    let (mut session, block) = open(&store);
    let count = count();
    for number in 0..count {
        words(block).fill(number + 1);
        // One text in memory that no commit contains, one in a committed block.
        let text = format!("argument {number}\0");
        let gained = session.heap().allocate(100_000, 8).unwrap();
        for to in [gained, block] {
            // SAFETY: both blocks are longer than the text.
            unsafe { to.as_ptr().copy_from_nonoverlapping(text.as_ptr(), text.len()) };
        }
        let arguments = [
            c"test".as_ptr(),
            gained.as_ptr().cast(),
            c"=".as_ptr(),
            block.as_ptr().cast(),
            null(),
        ];
        succeeds(start_program(number, &arguments));
        assert!(session.commit().unwrap());
        // SAFETY: allocated above, and not used after.
        unsafe { session.heap().try_free(gained) }.unwrap();
    }
    println!("\n{count} children");
    session.close().unwrap();
}

#[test]
fn programs_receive_arguments_stored_in_an_object() {
    with_store("role_writer_that_starts_programs");
}

#[test]
#[ignore = "a part of another test"]
fn role_threads() {
    let Some((store, numbers)) = arguments() else { return };
    let (mut session, block) = open(&store);
    let stop = std::sync::atomic::AtomicBool::new(false);
    // Held while a thread stores, so that all words are equal at each fork.
    let storing = std::sync::Mutex::new(0);
    let address = block.as_ptr() as usize;
    let forks = count().min(200);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let block = NonNull::new(address as *mut u8).unwrap();
            let mut gained = Vec::new();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let mut state = storing.lock().unwrap();
                *state += 1;
                words(block).fill(*state);
                gained.push(session.heap().allocate(8 * WORDS, 8).unwrap());
                drop(state);
                session.commit().unwrap();
                session.checkpoint().unwrap();
                if gained.len() == 20 {
                    for block in gained.drain(..) {
                        // SAFETY: allocated above, and not used after.
                        unsafe { session.heap().try_free(block) }.unwrap();
                    }
                }
                numbers.set(COMMITS, numbers.get(COMMITS) + 1);
            }
        });
        let mut made = 0;
        while made < forks {
            let children: Vec<i32> = (0..20)
                .map(|_| {
                    let state = storing.lock().unwrap();
                    let later = numbers.get(COMMITS) + 2;
                    fork(Way::Fork, || {
                        are(block, *state) && numbers.reaches(COMMITS, later) && are(block, *state)
                    })
                })
                .collect();
            made += children.len() as u64;
            children.into_iter().for_each(succeeds);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    println!("\n{} children", count());
    session.close().unwrap();
}

#[test]
fn children_keep_the_memory_while_another_thread_of_their_parent_commits() {
    with_store("role_threads");
}
