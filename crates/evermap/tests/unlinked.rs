//! A writer whose files were removed gets an error from a commit that could not be found again.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use evermap::{Durability, Error, Store, WriteOptions};

struct Place {
    _directory: tempfile::TempDir,
    store: Store,
    /// Returns the object's file, and its log if it is being written.
    files: [PathBuf; 2],
}

impl Place {
    fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create_new(directory.path().join("store")).unwrap();
        store.create::<u64, _>("number", 1).unwrap();
        let object = store.path().join("objects").join(store.info("number").unwrap().uuid);
        let files = [object.clone(), object.with_extension("log")];
        Place { _directory: directory, store, files }
    }

    fn remove(&self, which: &[usize]) -> Vec<PathBuf> {
        let removed: Vec<PathBuf> = which.iter().map(|&at| self.files[at].clone()).collect();
        removed.iter().for_each(|file| fs::remove_file(file).unwrap());
        removed
    }
}

fn is_told(result: evermap::Result<impl std::fmt::Debug>, removed: &[PathBuf]) {
    let error = result.unwrap_err();
    let Error::Io { path, .. } = &error else { panic!("{error:?}") };
    assert!(removed.contains(path), "{path:?}");
    let words = error.to_string();
    assert!(words.contains("removed while it was open") && words.contains("backup"), "{words}");
}

/// Which of the two files are removed.
const REMOVED: [&[usize]; 3] = [&[0], &[1], &[0, 1]];

#[test]
fn a_durable_commit_to_a_removed_file_is_an_error() {
    for which in REMOVED {
        let place = Place::new();
        let mut session = place.store.write::<u64>("number").unwrap();
        *session.root_mut() = 2;
        assert!(session.commit().unwrap());
        let removed = place.remove(which);
        for number in 3..6 {
            *session.root_mut() = number;
            is_told(session.commit(), &removed);
            assert_eq!(*session, number, "the change is still there");
        }
    }
}

#[test]
fn a_session_without_flushes_gets_the_error_when_it_flushes() {
    let interval = Durability::Interval(Duration::from_secs(3600));
    for durability in [Durability::Close, interval] {
        for which in REMOVED {
            for ends in [false, true] {
                let place = Place::new();
                let options = WriteOptions::new().durability(durability);
                let mut session = place.store.write_with::<u64>("number", &options).unwrap();
                *session.root_mut() = 2;
                session.commit().unwrap();
                session.sync().unwrap();
                let removed = place.remove(which);
                *session.root_mut() = 3;
                session.commit().unwrap();
                match ends {
                    false => is_told(session.sync(), &removed),
                    true => is_told(session.close(), &removed),
                }
            }
        }
    }
}

#[test]
fn the_next_commit_to_a_removed_store_is_an_error() {
    let place = Place::new();
    let mut session = place.store.write::<u64>("number").unwrap();
    *session.root_mut() = 2;
    session.commit().unwrap();
    fs::remove_dir_all(place.store.path()).unwrap();
    *session.root_mut() = 3;
    is_told(session.commit(), &place.files);
}
