//! Forks while an object is being created. The child continues the creation, but it neither changes
//! nor publishes its parent's object. The memory is read-only in the child, so a store kills it.

use std::cell::Cell;

use evermap::{Error, PVec, Store, from_iter, tools};

use crate::common::{TestStore, argument, names};
use crate::process::{Way, end_if_it_hangs, end_of, run};

/// Numbers that fill pages: some are written before the fork, some after it.
const LENGTH: u64 = 20_000;
/// Value that the child stores instead of a number.
const OF_THE_CHILD: u64 = 1 << 40;

/// Forks in the middle of a sequence of numbers. The child continues like its parent.
struct Middle {
    way: Way,
    /// The parent waits for the child's end before it continues.
    child_first: bool,
    child: Cell<Option<i32>>,
}

impl Middle {
    fn is_child(&self) -> bool {
        self.child.get() == Some(0)
    }

    fn numbers(&self) -> impl Iterator<Item = u64> {
        (0..LENGTH).map(|number| {
            if number == LENGTH / 2 {
                let child = copy_process(self.way);
                self.child.set(Some(child));
                if child == 0 {
                    end_if_it_hangs();
                } else if self.child_first {
                    dies_of_its_store(child);
                }
            }
            number + if self.is_child() { OF_THE_CHILD } else { 0 }
        })
    }

    /// Ends the child, with 0 if its call was refused. In the parent, judges the child.
    fn judge(&self, result: Result<(), Error>) {
        if self.is_child() {
            let code = i32::from(!matches!(result, Err(Error::Forked { .. })));
            // SAFETY: ends only the child.
            unsafe { libc::_exit(code) };
        }
        result.unwrap();
        if !self.child_first {
            dies_of_its_store(self.child.get().unwrap());
        }
    }
}

/// Waits for a child: its store to the parent's memory must fault, or its call must be refused.
fn dies_of_its_store(child: i32) {
    let status = end_of(child);
    let is_fault = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV;
    assert!(is_fault || status == 0, "status {status} of a child");
}

/// Forks this process. Returns in both processes.
fn copy_process(way: Way) -> i32 {
    // SAFETY: the child has only this thread and ends without destructors. The other thread belongs
    // to the test runner, which waits and holds no lock.
    let child = unsafe {
        match way {
            Way::Fork => libc::fork(),
            Way::Clone => libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32,
        }
    };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    child
}

#[test]
#[ignore = "a part of another test: a process that forks while it makes objects"]
fn role_creates() {
    let Some(store) = argument(0).map(|path| Store::open(path).unwrap()) else { return };
    store.create::<u64, _>("replaced", 1).unwrap();
    for way in [Way::Fork, Way::Clone] {
        for child_first in [true, false] {
            let middle = || Middle { way, child_first, child: Cell::new(None) };
            let name = |what: &str| format!("{what} {way:?} {child_first}");

            let fork = middle();
            fork.judge(store.create::<PVec<u64>, _>(&name("created"), from_iter(fork.numbers())));

            let fork = middle();
            fork.judge(store.replace::<PVec<u64>, _>("replaced", from_iter(fork.numbers())));

            let fork = middle();
            let mut batch = store.batch().unwrap();
            batch.create::<u64, _>(&name("before"), 7).unwrap();
            let filled =
                batch.create::<PVec<u64>, _>(&name("in a batch"), from_iter(fork.numbers()));
            // The child tries to commit, whatever the result of the creation.
            let committed = match fork.is_child() {
                true => batch.commit().and(filled),
                false => filled.and_then(|()| batch.commit()),
            };
            fork.judge(committed);
        }
    }
}

#[test]
fn a_child_forked_during_a_creation_neither_changes_nor_publishes_the_object() {
    let test = TestStore::in_memory();
    run("creating::role_creates", &[test.path().to_str().unwrap()]);
    let mut found = test.list().unwrap();
    found.sort();
    assert_eq!(found.len(), 1 + 4 * 3, "{found:?}");
    for name in found.iter().filter(|name| !name.starts_with("before")) {
        let numbers = test.read::<PVec<u64>>(name).unwrap();
        assert!(
            numbers.iter().copied().eq(0..LENGTH),
            "{name} has other contents than its creator stored"
        );
    }
    assert_eq!(names(&test.path().join("building")), Vec::<String>::new());
    let report = tools::check(test.path(), &tools::CheckOptions::new()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    // A child of the last process would still hold a lock here.
    assert_eq!(still_locked(&test), 0);
}

/// Writes each object once, to detect locks that are still held.
fn still_locked(test: &TestStore) -> usize {
    let names = test.list().unwrap();
    let written = |name: &&String| test.write::<PVec<u64>>(name).map(|s| s.close()).is_ok();
    let numbers: Vec<&String> = names.iter().filter(|name| !name.starts_with("before")).collect();
    numbers.len() - numbers.iter().filter(|name| written(name)).count()
}
