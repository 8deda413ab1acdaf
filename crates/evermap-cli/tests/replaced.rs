//! Verbs that open a document work while `parse --force` replaces it: they never fail, and always
//! find the name. `EVERMAP_TEST_SECONDS` sets the duration.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use common::{Place, Ran};

const NAME: &str = "page.html";

/// Runs a verb repeatedly until `end`. Returns the number of runs, and adds failed ones to
/// `failed`.
fn repeat(place: &Place, verb: &[&str], end: Instant, failed: &Mutex<Vec<String>>) -> usize {
    let mut runs = 0;
    while Instant::now() < end {
        let Ran { code, out, err } = place.run(verb);
        let lists = verb[0] != "ls" || out.contains(NAME);
        if code != 0 || !lists {
            failed.lock().unwrap().push(format!("{verb:?}: {code} {err} {out}"));
        }
        runs += 1;
    }
    runs
}

#[test]
fn verbs_never_fail_or_miss_a_document_while_it_is_replaced() {
    let place = Place::new();
    place.file(NAME, "<title>one</title><p>one<p>two");
    place.ok(&["parse", NAME]);
    let given = std::env::var("EVERMAP_TEST_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs_f64(given.unwrap_or(3.0));
    let verbs: [&[&str]; 11] = [
        &["parse", "--force", NAME],
        &["parse", "--force", NAME],
        &["query", NAME, "p", "--count"],
        &["query", NAME, "p", "--count"],
        &["ls"],
        &["ls", "-l"],
        &["info", NAME],
        &["stats", NAME],
        &["map", NAME],
        &["export", NAME, "exported", "--force"],
        &["audit", NAME],
    ];
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let threads = verbs.map(|verb| (verb, scope.spawn(|| repeat(&place, verb, end, &failed))));
        for (verb, thread) in threads {
            let runs = thread.join().unwrap();
            println!("{runs} runs of {verb:?}");
            assert!(runs > 0, "{verb:?} never ran");
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{failed:#?}");
}
