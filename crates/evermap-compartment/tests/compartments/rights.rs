//! Tests which objects a thread can access inside and outside of classes. Most checks let the
//! kernel access the memory for the thread, so a missing right is an error and not a fault. The
//! table in `main.rs` states the promise that each function tests.

use evermap::{Access, ActiveProtection, Protection};
use evermap_compartment::Error;
use evermap_compartment::compartments::{Class, assign, reset_rights, spawn};

use super::{BOTH, NOTHING, READ, get, may, object, put, store};

pub fn as_assigned() {
    let (_directory, store) = store();
    let (mut words, mut pages) = (object(&store, "words"), object(&store, "pages"));
    assert_eq!(may(&words), BOTH, "nothing is assigned");
    let [parser, viewer, clock] = ["parser", "viewer", "clock"].map(|n| Class::define(n).unwrap());
    assert_eq!(Class::define("parser").unwrap(), parser);
    assign(&mut words, &[(parser, Access::Write), (viewer, Access::Read)]).unwrap();
    assert_eq!((may(&words), may(&pages)), (NOTHING, BOTH));
    assign(&mut pages, &[(parser, Access::Read), (clock, Access::Write)]).unwrap();
    assert_eq!((may(&words), may(&pages)), (NOTHING, NOTHING));
    for (class, rights) in [
        (parser, (BOTH, READ)),
        (viewer, (READ, NOTHING)),
        (clock, (NOTHING, BOTH)),
        (Class::define("idle").unwrap(), (NOTHING, NOTHING)),
    ] {
        let _inside = class.enter();
        assert_eq!((may(&words), may(&pages)), rights, "{}", class.name());
    }
    assert_eq!((may(&words), may(&pages)), (NOTHING, NOTHING));
    let _inside = parser.enter();
    put(&words, 8);
    assert_eq!((get(&words), get(&pages)), (8, 7));

    // Snapshots are restricted like sessions.
    words.commit().unwrap();
    words.close().unwrap();
    let mut snapshot = store.read_raw("words").unwrap();
    assign(&mut snapshot, &[(viewer, Access::Write)]).unwrap();
    assert!(!super::may_read(snapshot.root().address));
    let _inside = viewer.enter();
    assert!(super::may_read(snapshot.root().address));
    assert!(!super::may_store(snapshot.root().address), "a snapshot is mapped read-only");
}

pub fn nested() {
    let (_directory, store) = store();
    let (mut a, mut b) = (object(&store, "a"), object(&store, "b"));
    let (of_a, of_b) = (Class::define("of a").unwrap(), Class::define("of b").unwrap());
    assign(&mut a, &[(of_a, Access::Write)]).unwrap();
    assign(&mut b, &[(of_b, Access::Write)]).unwrap();
    let readable = || (may(&a).0, may(&b).0);
    let outer = of_a.enter();
    assert_eq!(readable(), (true, false));
    let inner = of_b.enter();
    assert_eq!(readable(), (false, true), "the rights of the inner class, and no others");
    let innermost = of_a.enter();
    assert_eq!(readable(), (true, false));
    drop(innermost);
    assert_eq!(readable(), (false, true));
    drop(outer);
    assert_eq!(readable(), (false, true), "the latest remaining guard");
    drop(inner);
    assert_eq!(readable(), (false, false));
    // Unwinding drops the guards.
    let failed = std::panic::catch_unwind(|| {
        let _inside = of_a.enter();
        panic!("on purpose");
    });
    assert!(failed.is_err());
    assert_eq!(readable(), (false, false));
}

pub fn inherited() {
    let (_directory, store) = store();
    let mut words = object(&store, "words");
    let class = Class::define("writer").unwrap();
    assign(&mut words, &[(class, Access::Write)]).unwrap();
    let address = words.root().address as usize;
    let reads = move || super::may_read(address as *const u8);
    let before = spawn(reads).unwrap();
    assert!(!before.join().unwrap());
    let _inside = class.enter();
    assert!(std::thread::spawn(reads).join().unwrap(), "the kernel passes rights on");
    assert!(!spawn(reads).unwrap().join().unwrap());
    let after_reset = std::thread::spawn(move || {
        reset_rights();
        let outside = reads();
        let _inside = class.enter();
        (outside, reads())
    });
    assert_eq!(after_reset.join().unwrap(), (false, true));
    reset_rights();
    assert!(reads(), "rights from a guard are kept");
}

pub fn library() {
    let (directory, store) = store();
    let mut words = object(&store, "words");
    let class = Class::define("writer").unwrap();
    assign(&mut words, &[(class, Access::Write)]).unwrap();
    let write = |words: &evermap::RawSession, number| {
        let _inside = class.enter();
        put(words, number);
    };
    write(&words, 8);
    assert!(words.commit().unwrap());
    write(&words, 9);
    words.rollback().unwrap();
    write(&words, 10);
    assert!(words.commit().unwrap());
    assert!(words.checkpoint().unwrap());
    words.reserve(20 << 20).unwrap();
    assert!(words.info().unwrap().heap.allocated_bytes > 0);
    assert!(words.map().unwrap().regions.len() > 1);
    words.shrink().unwrap();
    words.release(1 << 20).unwrap();
    words.sync().unwrap();
    assert_eq!(may(&words), NOTHING);
    {
        let _inside = class.enter();
        assert_eq!(get(&words), 10);
        put(&words, 11);
        words.commit().unwrap();
        assert_eq!(may(&words), BOTH, "a commit keeps the thread's rights");
    }
    // Close one and drop the other, from a thread in no class.
    let mut other = object(&store, "other");
    assign(&mut other, &[(class, Access::Write)]).unwrap();
    drop(other);
    words.close().unwrap();
    drop(store);
    let report =
        evermap::tools::check(directory.path().join("store"), &Default::default()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

pub fn protected() {
    let (_directory, store) = store();
    Protection::prepare_keys();
    let mut words = object(&store, "words");
    let class = Class::define("writer").unwrap();
    assign(&mut words, &[(class, Access::Write)]).unwrap();
    let address = words.root().address;
    let mut words = words.protect(Protection::Keys).unwrap();
    // A page has one key, and the class uses it. So write protection changes the page tables.
    assert_eq!(words.protection(), ActiveProtection::Pages);
    let access = || (super::may_read(address), super::may_store(address));
    {
        let _scope = words.scope().unwrap();
        assert_eq!(access(), NOTHING, "a scope gives no rights to a class's objects");
    }
    {
        let _inside = class.enter();
        assert_eq!(access(), READ, "the class stores in scopes only");
        let _scope = words.scope().unwrap();
        assert_eq!(access(), BOTH);
        // SAFETY: the root is a number, and the scope is open.
        unsafe { address.cast::<u64>().write(8) };
    }
    assert!(words.commit().unwrap());
    assert_eq!(access(), NOTHING);
    // An object of no class is protected by a key. Entering and leaving a class does not affect
    // the thread's right to it.
    let unassigned = object(&store, "unassigned").protect(Protection::Keys).unwrap();
    assert_eq!(unassigned.protection(), ActiveProtection::Keys);
    let address = unassigned.root().address;
    let scope = unassigned.scope().unwrap();
    {
        let _inside = class.enter();
        assert!(super::may_store(address));
    }
    assert!(super::may_store(address));
    drop(scope);
    assert_eq!((super::may_read(address), super::may_store(address)), READ);
    words.close().unwrap();
}

pub fn shared_keys() {
    let (_directory, store) = store();
    let (a, b) = (Class::define("a").unwrap(), Class::define("b").unwrap());
    let sessions: Vec<_> = (0..30)
        .map(|number| {
            let mut session = object(&store, &format!("object {number}"));
            // The same set of rights, written in two ways. The last entry of a class counts.
            let rights = match number % 2 {
                0 => vec![(a, Access::Write), (b, Access::Read)],
                _ => vec![(b, Access::Read), (a, Access::Read), (a, Access::Write)],
            };
            assign(&mut session, &rights).unwrap();
            session
        })
        .collect();
    let _inside = b.enter();
    assert!(sessions.iter().all(|session| may(session) == READ));
}

pub fn too_many() {
    let (_directory, store) = store();
    let mut sessions = Vec::new();
    for number in 0..20 {
        let class = Class::define(&format!("class {number}")).unwrap();
        let mut session = object(&store, &format!("object {number}"));
        match assign(&mut session, &[(class, Access::Write)]) {
            Ok(()) => sessions.push((class, session)),
            Err(error) => {
                assert!(matches!(error, Error::NoKey { .. }), "{error}");
                assert!(error.to_string().contains(&format!("`class {number}`")), "{error}");
                assert_eq!(may(&session), BOTH, "the object is unchanged");
                break;
            }
        }
    }
    assert!((8..=15).contains(&sessions.len()), "{} keys", sessions.len());
    for (class, session) in &sessions {
        let _inside = class.enter();
        let open = sessions.iter().filter(|(_, other)| may(other) == BOTH).count();
        assert_eq!((open, may(session)), (1, BOTH));
    }
}

pub fn twice() {
    let (_directory, store) = store();
    let mut words = object(&store, "words");
    let class = Class::define("writer").unwrap();
    assign(&mut words, &[(class, Access::Write)]).unwrap();
    let error = assign(&mut words, &[(class, Access::Read)]).unwrap_err();
    assert!(matches!(&error, Error::Object { object, .. } if object == "words"), "{error}");
    let _inside = class.enter();
    assert_eq!(may(&words), BOTH);
}

pub fn system_calls() {
    let (_directory, store) = store();
    let mut words = object(&store, "words");
    let class = Class::define("reader").unwrap();
    assign(&mut words, &[(class, Access::Read)]).unwrap();
    let address = words.root().address;
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&zero);
    let read = || {
        // SAFETY: the kernel refuses to write. Otherwise the number becomes zero and the test
        // fails.
        let count = unsafe { libc::read(fd, address.cast(), 8) };
        (count, std::io::Error::last_os_error().raw_os_error())
    };
    assert_eq!(read(), (-1, Some(libc::EFAULT)));
    let _inside = class.enter();
    assert_eq!(read(), (-1, Some(libc::EFAULT)));
    assert_eq!(get(&words), 7);
}
