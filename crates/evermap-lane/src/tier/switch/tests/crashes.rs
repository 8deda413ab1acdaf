//! Kills a move at every step: nothing is lost, the path leads to the contents, and recovery is
//! idempotent.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use rustix::process::Signal;

use super::fixture::{Fixture, contents};
use crate::tier::switch::Keep;
use crate::tier::watch::Step;

/// Kills a process at a step of its move, and checks all guarantees.
fn killed(verb: &str, step: Step, expected: &[u8], prepare: impl Fn(&Fixture)) {
    let fixture = Fixture::new();
    let before = fixture.attributes();
    prepare(&fixture);
    let attributes = fixture.attributes();
    let status = fixture.spawn_helper(verb, step, Signal::KILL).wait().unwrap();
    assert_eq!(status.signal(), Some(9), "{verb} {step:?}: {status}");
    assert!(
        fixture.read() == expected,
        "{verb} {step:?}: the path leads to the contents before recovery"
    );
    let recovered = fixture.recover();
    assert!(recovered.is_complete(), "{verb} {step:?}: {recovered:?}");
    assert!(fixture.read() == expected, "{verb} {step:?}: recovery loses nothing");
    let once = fixture.everything();
    let again = fixture.recover();
    assert!(again.placed.is_empty() && again.returned.is_empty(), "{verb} {step:?}: {again:?}");
    assert!(fixture.everything() == once, "{verb} {step:?}: recovery is idempotent");
    assert_eq!(fixture.attributes(), attributes, "{verb} {step:?}");
    if !fixture.journal().files().unwrap().is_empty() {
        fixture.back(Keep::Neither).unwrap();
    }
    assert!(fixture.read() == expected, "{verb} {step:?}: the file is taken back");
    fixture.assert_unchanged();
    if expected == contents() {
        assert_eq!(fixture.attributes(), before, "{verb} {step:?}");
    }
}

#[test]
fn a_file_survives_a_kill_at_any_step_of_placing() {
    for step in Step::PLACE {
        killed("place", step, &contents(), |_| ());
    }
}

#[test]
fn a_file_survives_a_kill_at_any_step_back() {
    for step in Step::BACK {
        // These steps occur for modified copies only.
        if !matches!(step, Step::BackCopied | Step::BackVouched) {
            killed("back", step, &contents(), |fixture| drop(fixture.place().unwrap()));
        }
    }
}

#[test]
fn writes_on_the_tier_survive_a_kill_at_any_step_back() {
    for step in Step::BACK {
        killed("back", step, b"written on the tier", |fixture| {
            fixture.place().unwrap();
            fixture.write(b"written on the tier");
        });
    }
}

#[test]
fn a_file_without_an_original_survives_a_kill_at_any_step_back() {
    for step in Step::BACK {
        killed("back", step, &contents(), |fixture| {
            fixture.place().unwrap();
            fixture.commit().unwrap();
        });
    }
}

#[test]
fn a_file_survives_a_kill_at_any_step_of_dropping_the_original() {
    for step in Step::COMMIT {
        killed("commit", step, &contents(), |fixture| drop(fixture.place().unwrap()));
    }
}

#[test]
fn an_interrupted_drop_keeps_an_original_that_still_exists() {
    let fixture = Fixture::new();
    let copy = fixture.place().unwrap();
    fixture.spawn_helper("commit", Step::Dropping, Signal::KILL).wait().unwrap();
    // The failure that killed the process may have destroyed the tier.
    fs::remove_file(copy).unwrap();
    assert!(fixture.recover().is_complete());
    assert!(fs::read(fixture.kept()).unwrap() == contents());
    fixture.back(Keep::Original).unwrap();
    assert!(fixture.read() == contents());
    fixture.assert_unchanged();
}

/// Kills a move half-way and writes to both files: recovery decides nothing until the caller
/// chooses a file, and then keeps the chosen one.
fn both_written(verb: &str, step: Step, write: impl Fn(&Fixture, &Path)) {
    for (keep, expected) in [(Keep::Copy, &b"the copy"[..]), (Keep::Original, b"the original")] {
        let fixture = Fixture::new();
        let copy = (verb == "back").then(|| fixture.place().unwrap());
        fixture.spawn_helper(verb, step, Signal::KILL).wait().unwrap();
        let copy = copy.unwrap_or_else(|| fs::read_link(fixture.file()).unwrap());
        write(&fixture, &copy);
        let recovered = fixture.recover();
        let is_conflict =
            matches!(recovered.left.as_slice(), [(_, crate::tier::Error::Conflict { .. })]);
        assert!(is_conflict, "{verb} {step:?}: {recovered:?}");
        assert!(fixture.back(Keep::Neither).is_err(), "{verb} {step:?}");
        fixture.back(keep).unwrap();
        assert_eq!(fixture.read(), expected, "{verb} {step:?} {keep:?}");
        fixture.assert_unchanged();
    }
}

#[test]
fn an_interrupted_placement_with_both_files_modified_waits_for_a_choice() {
    for step in [Step::Exchanged, Step::Flushed] {
        both_written("place", step, |fixture, copy| {
            fs::write(copy, b"the copy").unwrap();
            fs::write(fixture.kept(), b"the original").unwrap();
        });
    }
}

#[test]
fn an_interrupted_return_with_both_files_modified_waits_for_a_choice() {
    for step in [Step::BackExchanged, Step::BackFlushed, Step::Unlinked] {
        both_written("back", step, |fixture, copy| {
            fs::write(copy, b"the copy").unwrap();
            fixture.write(b"the original");
        });
    }
}

#[test]
fn a_returned_file_that_was_modified_is_not_removed() {
    let fixture = Fixture::new();
    let copy = fixture.place().unwrap();
    fixture.write(b"on the tier");
    fixture.spawn_helper("back", Step::BackFlushed, Signal::KILL).wait().unwrap();
    fixture.write(b"since it came back");
    fs::write(copy, b"on the tier, too").unwrap();
    for keep in [Keep::Neither, Keep::Copy, Keep::Original] {
        assert!(fixture.back(keep).is_err());
        assert_eq!(fixture.read(), b"since it came back");
    }
}

#[test]
fn writes_between_a_crash_and_its_recovery_are_kept() {
    for (verb, step) in Step::PLACE
        .map(|step| ("place", step))
        .into_iter()
        .chain(Step::BACK.map(|step| ("back", step)))
    {
        let fixture = Fixture::new();
        if verb == "back" {
            fixture.place().unwrap();
            fixture.write(b"on the tier");
        }
        fixture.spawn_helper(verb, step, Signal::KILL).wait().unwrap();
        fixture.write(b"after the crash");
        let recovered = fixture.recover();
        assert!(recovered.is_complete(), "{verb} {step:?}: {recovered:?}");
        assert_eq!(fixture.read(), b"after the crash", "{verb} {step:?}");
        if !fixture.journal().files().unwrap().is_empty() {
            fixture.back(Keep::Neither).unwrap();
        }
        assert_eq!(fixture.read(), b"after the crash", "{verb} {step:?}");
        fixture.assert_unchanged();
    }
}

#[test]
fn a_file_can_be_placed_again_after_an_interrupted_move() {
    for step in Step::PLACE {
        let fixture = Fixture::new();
        fixture.spawn_helper("place", step, Signal::KILL).wait().unwrap();
        match fixture.place() {
            Ok(copy) => assert!(fs::read(copy).unwrap() == contents()),
            Err(error) => {
                let is_placed = matches!(error, crate::tier::Error::AlreadyPlaced { .. });
                assert!(is_placed && fixture.file().is_symlink(), "{step:?}: {error}");
            }
        }
        fixture.back(Keep::Neither).unwrap();
        fixture.assert_unchanged();
    }
}

#[test]
fn recovery_waits_for_an_unavailable_tier() {
    for (verb, step) in [
        ("place", Step::Copied),
        ("place", Step::Vouched),
        ("place", Step::Exchanged),
        ("back", Step::BackExchanged),
    ] {
        let fixture = Fixture::new();
        if verb == "back" {
            fixture.place().unwrap();
        }
        fixture.spawn_helper(verb, step, Signal::KILL).wait().unwrap();
        let home = crate::tier::layout::user_directory(&fixture.path("tier"));
        fs::rename(&home, fixture.path("away")).unwrap();
        for _ in 0..2 {
            let recovered = fixture.recover();
            let [(path, error)] = recovered.left.as_slice() else {
                panic!("{step:?}: {recovered:?}")
            };
            assert_eq!(*path, fixture.file());
            assert!(matches!(error, crate::tier::Error::TierMissing { .. }), "{step:?}: {error}");
        }
        fs::rename(fixture.path("away"), &home).unwrap();
        assert!(fixture.recover().is_complete());
        assert!(fixture.read() == contents(), "{step:?}");
    }
}
