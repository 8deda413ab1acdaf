//! Scopes: nested, in several threads, on several objects, and in a forked child.

use std::sync::mpsc::channel;

use evermap::{ActiveProtection, PVec, Protection, Store};

use super::faults::make_vector;
use super::{check_is_clean, expected_protection, store};

pub fn nested(protection: Protection) {
    let (_directory, store) = store();
    store.create_raw("heap").unwrap();
    let session = store.write_raw("heap").unwrap().protect(protection).unwrap();
    let first = session.scope().unwrap();
    let block = first.heap().allocate(8, 8).unwrap().cast::<u64>();
    let second = session.scope().unwrap();
    drop(first);
    // SAFETY: the block belongs to this test, and the second scope is open.
    unsafe { block.write_volatile(1) };
    drop(second);
    session.begin_write().unwrap();
    session.begin_write().unwrap();
    assert!(session.end_write());
    // SAFETY: the block belongs to this test, and one of two scopes is still open.
    unsafe { block.write_volatile(2) };
    assert!(session.end_write());
    assert!(!session.end_write(), "there is nothing left to end");
    // A scope that is never dropped leaves the object writable and the session usable.
    std::mem::forget(session.scope().unwrap());
    // SAFETY: the block belongs to this test, and its scope is open.
    unsafe { block.write_volatile(3) };
    session.close().unwrap();
}

pub fn threads(protection: Protection) {
    let (_directory, store) = store();
    make_vector(&store, "numbers", 1000);
    assert!(protection == Protection::Pages || Protection::prepare_keys());
    // A thread that was started before the object was opened.
    let (jobs, waiting) = channel::<Box<dyn FnOnce() + Send>>();
    let old = std::thread::spawn(move || waiting.iter().for_each(|job| job()));
    let mut session = store.write::<PVec<u64>>("numbers").unwrap().protect(protection).unwrap();
    assert_eq!(session.protection(), expected_protection(protection));
    let pass = session.pass();
    let address = session.as_ptr() as usize;
    let (sender, answer) = channel();
    let read = move || {
        // SAFETY: the session is open while the job runs.
        sender.send(unsafe { *(address as *const u64) }).unwrap();
    };
    jobs.send(Box::new(read)).unwrap();
    assert_eq!(answer.recv().unwrap(), 7, "every thread may read");

    let mut scope = session.scope().unwrap();
    let mut root = scope.root_mut();
    let numbers = root.as_mut_slice();
    // A thread that was started inside the scope may store.
    std::thread::scope(|threads| {
        threads.spawn(|| numbers[..100].fill(1));
    });
    let (sender, done) = channel();
    let (there, permitted) = (pass.clone(), numbers[100..200].as_mut_ptr() as usize);
    jobs.send(Box::new(move || {
        let _permit = there.enter().unwrap();
        // SAFETY: a hundred numbers that are not used elsewhere before `done`.
        unsafe { std::slice::from_raw_parts_mut(permitted as *mut u64, 100) }.fill(2);
        sender.send(()).unwrap();
    }))
    .unwrap();
    done.recv().unwrap();
    drop(scope);
    assert!(session.commit().unwrap());
    session.close().unwrap();
    // After its session a pass opens nothing, and other memory at the address stays unchanged.
    let permit = pass.enter().unwrap();
    drop(permit);
    drop(jobs);
    old.join().unwrap();
    let numbers = store.read::<PVec<u64>>("numbers").unwrap();
    assert_eq!((numbers[99], numbers[199], numbers[200]), (1, 2, 7));
}

pub fn forked(protection: Protection) {
    let (_directory, store) = store();
    make_vector(&store, "numbers", 10);
    let mut session = store.write::<PVec<u64>>("numbers").unwrap().protect(protection).unwrap();
    let pass = session.pass();
    // SAFETY: the process has one thread; the child uses only calls that the library must refuse.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = protection == Protection::Keys || pass.enter().is_err();
        let code = i32::from(!(refused && session.commit().is_err()));
        // SAFETY: ends the child without the parent's destructors.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for this child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child opened its parent's object");
    session.scope().unwrap().root_mut().as_mut_slice()[0] = 5;
    assert!(session.commit().unwrap());
    session.close().unwrap();
    assert_eq!(store.read::<PVec<u64>>("numbers").unwrap()[0], 5);
}

/// Opens more objects than there are keys. Later some are closed, and their keys are reused.
pub fn several_objects(protection: Protection) {
    const OBJECTS: usize = 20;
    let (directory, store) = store();
    let name = |n: usize| format!("numbers {n}");
    (0..OBJECTS).for_each(|n| make_vector(&store, &name(n), 100));
    let open = |store: &Store, n: usize| {
        store.write::<PVec<u64>>(&name(n)).unwrap().protect(protection).unwrap()
    };
    let mut sessions: Vec<_> = (0..OBJECTS).map(|n| open(&store, n)).collect();
    let keys = sessions.iter().filter(|s| s.protection() == ActiveProtection::Keys).count();
    let pages = sessions.iter().filter(|s| s.protection() == ActiveProtection::Pages).count();
    assert_eq!(keys + pages, OBJECTS);
    match protection {
        Protection::Keys => assert!(keys > 0 && pages > 0, "{keys} and {pages}"),
        _ => assert_eq!(pages, OBJECTS),
    }
    // All scopes at once, each with its own session.
    for round in 0..3u64 {
        let mut scopes: Vec<_> = sessions.iter_mut().map(|s| s.scope().unwrap()).collect();
        for (n, scope) in scopes.iter_mut().enumerate() {
            scope.root_mut().as_mut_slice().fill(100 + round + n as u64);
        }
        drop(scopes);
        for session in &mut sessions {
            assert!(session.commit().unwrap());
        }
    }
    // A released key is reused.
    for n in (0..OBJECTS).rev() {
        sessions.remove(n).close().unwrap();
        let again = open(&store, n);
        assert_eq!(again[99], 102 + n as u64);
        assert!(n >= keys || again.protection() == expected_protection(protection), "object {n}");
        again.close().unwrap();
    }
    drop(store);
    check_is_clean(&directory.path().join("store"));
}

pub fn switched_off(_: Protection) {
    let (_directory, store) = store();
    make_vector(&store, "numbers", 10);
    let mut session =
        store.write::<PVec<u64>>("numbers").unwrap().protect(Protection::Off).unwrap();
    assert_eq!(session.protection(), ActiveProtection::Nothing);
    session.scope().unwrap().root_mut().as_mut_slice()[0] = 1;
    drop(session.pass().enter().unwrap());
    assert!(session.commit().unwrap());
    session.close().unwrap();
    let raw = store.write_raw("numbers").unwrap().protect(Protection::Off).unwrap();
    raw.begin_write().unwrap();
    drop(raw.scope().unwrap());
    assert!(raw.end_write());
}
