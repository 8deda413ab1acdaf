//! Killed at every step of every way: nothing is lost, the path leads to the contents, and recovering twice is recovering once.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use rustix::process::Signal;

use super::stage::{Stage, contents};
use crate::tier::switch::Keep;
use crate::tier::watch::Step;

/// Kills a process on the way at a step; then all there is to promise.
fn killed(verb: &str, step: Step, expected: &[u8], prepare: impl Fn(&Stage)) {
    let stage = Stage::new();
    let before = stage.attributes();
    prepare(&stage);
    let attributes = stage.attributes();
    let status = stage.act(verb, step, Signal::KILL).wait().unwrap();
    assert_eq!(status.signal(), Some(9), "{verb} {step:?}: {status}");
    assert!(stage.read() == expected, "{verb} {step:?}: the path leads to the contents at once");
    let recovered = stage.recover();
    assert!(recovered.is_settled(), "{verb} {step:?}: {recovered:?}");
    assert!(stage.read() == expected, "{verb} {step:?}: recovering loses nothing");
    let once = stage.everything();
    let again = stage.recover();
    assert!(again.placed.is_empty() && again.returned.is_empty(), "{verb} {step:?}: {again:?}");
    assert!(stage.everything() == once, "{verb} {step:?}: recovering twice is recovering once");
    assert_eq!(stage.attributes(), attributes, "{verb} {step:?}");
    if !stage.journal().files().unwrap().is_empty() {
        stage.back(Keep::Neither).unwrap();
    }
    assert!(stage.read() == expected, "{verb} {step:?}: it comes back");
    stage.is_as_before();
    if expected == contents() {
        assert_eq!(stage.attributes(), before, "{verb} {step:?}");
    }
}

#[test]
fn killed_at_any_step_on_the_way_to_the_tier_a_file_is_whole() {
    for step in Step::GOING {
        killed("go", step, &contents(), |_| ());
    }
}

#[test]
fn killed_at_any_step_on_the_way_back_a_file_is_whole() {
    for step in Step::BACK {
        // These are of copies that were written to.
        if !matches!(step, Step::BackCopied | Step::BackVouched) {
            killed("back", step, &contents(), |stage| drop(stage.go().unwrap()));
        }
    }
}

#[test]
fn killed_at_any_step_on_the_way_back_what_was_written_on_the_tier_is_there() {
    for step in Step::BACK {
        killed("back", step, b"written on the tier", |stage| {
            stage.go().unwrap();
            stage.write(b"written on the tier");
        });
    }
}

#[test]
fn killed_at_any_step_on_the_way_back_without_an_original_a_file_is_whole() {
    for step in Step::BACK {
        killed("back", step, &contents(), |stage| {
            stage.go().unwrap();
            stage.commit().unwrap();
        });
    }
}

#[test]
fn killed_at_any_step_of_dropping_the_original_a_file_is_whole() {
    for step in Step::COMMIT {
        killed("commit", step, &contents(), |stage| drop(stage.go().unwrap()));
    }
}

#[test]
fn an_original_that_was_being_dropped_stays_as_long_as_it_is_there() {
    let stage = Stage::new();
    let copy = stage.go().unwrap();
    stage.act("commit", Step::Dropping, Signal::KILL).wait().unwrap();
    // What ended whoever was at it may have ended the tier, too.
    fs::remove_file(copy).unwrap();
    assert!(stage.recover().is_settled());
    assert!(fs::read(stage.kept()).unwrap() == contents());
    stage.back(Keep::Original).unwrap();
    assert!(stage.read() == contents());
    stage.is_as_before();
}

/// Killed half-way, both files written to: nothing is decided until somebody says which one is to be had, and that one is had then.
fn both_written(verb: &str, step: Step, write: impl Fn(&Stage, &Path)) {
    for (keep, expected) in [(Keep::Copy, &b"the copy"[..]), (Keep::Original, b"the original")] {
        let stage = Stage::new();
        let copy = (verb == "back").then(|| stage.go().unwrap());
        stage.act(verb, step, Signal::KILL).wait().unwrap();
        let copy = copy.unwrap_or_else(|| fs::read_link(stage.file()).unwrap());
        write(&stage, &copy);
        let recovered = stage.recover();
        let is_conflict =
            matches!(recovered.left.as_slice(), [(_, crate::tier::Error::Conflict { .. })]);
        assert!(is_conflict, "{verb} {step:?}: {recovered:?}");
        assert!(stage.back(Keep::Neither).is_err(), "{verb} {step:?}");
        stage.back(keep).unwrap();
        assert_eq!(stage.read(), expected, "{verb} {step:?} {keep:?}");
        stage.is_as_before();
    }
}

#[test]
fn half_way_there_and_both_written_to_somebody_says_which_is_had() {
    for step in [Step::Exchanged, Step::Flushed] {
        both_written("go", step, |stage, copy| {
            fs::write(copy, b"the copy").unwrap();
            fs::write(stage.kept(), b"the original").unwrap();
        });
    }
}

#[test]
fn half_way_back_and_both_written_to_somebody_says_which_is_had() {
    for step in [Step::BackExchanged, Step::BackFlushed, Step::Unlinked] {
        both_written("back", step, |stage, copy| {
            fs::write(copy, b"the copy").unwrap();
            stage.write(b"the original");
        });
    }
}

#[test]
fn what_came_back_and_was_written_to_since_is_not_taken_away() {
    let stage = Stage::new();
    let copy = stage.go().unwrap();
    stage.write(b"on the tier");
    stage.act("back", Step::BackFlushed, Signal::KILL).wait().unwrap();
    stage.write(b"since it came back");
    fs::write(copy, b"on the tier, too").unwrap();
    for keep in [Keep::Neither, Keep::Copy, Keep::Original] {
        assert!(stage.back(keep).is_err());
        assert_eq!(stage.read(), b"since it came back");
    }
}

#[test]
fn what_is_written_between_a_crash_and_its_recovery_is_kept() {
    for (verb, step) in Step::GOING
        .map(|step| ("go", step))
        .into_iter()
        .chain(Step::BACK.map(|step| ("back", step)))
    {
        let stage = Stage::new();
        if verb == "back" {
            stage.go().unwrap();
            stage.write(b"on the tier");
        }
        stage.act(verb, step, Signal::KILL).wait().unwrap();
        stage.write(b"after the crash");
        let recovered = stage.recover();
        assert!(recovered.is_settled(), "{verb} {step:?}: {recovered:?}");
        assert_eq!(stage.read(), b"after the crash", "{verb} {step:?}");
        if !stage.journal().files().unwrap().is_empty() {
            stage.back(Keep::Neither).unwrap();
        }
        assert_eq!(stage.read(), b"after the crash", "{verb} {step:?}");
        stage.is_as_before();
    }
}

#[test]
fn a_file_that_was_half_way_can_be_placed_again() {
    for step in Step::GOING {
        let stage = Stage::new();
        stage.act("go", step, Signal::KILL).wait().unwrap();
        match stage.go() {
            Ok(copy) => assert!(fs::read(copy).unwrap() == contents()),
            Err(error) => {
                let is_placed = matches!(error, crate::tier::Error::AlreadyPlaced { .. });
                assert!(is_placed && stage.file().is_symlink(), "{step:?}: {error}");
            }
        }
        stage.back(Keep::Neither).unwrap();
        stage.is_as_before();
    }
}

#[test]
fn a_tier_that_is_away_is_waited_for() {
    for (verb, step) in [
        ("go", Step::Copied),
        ("go", Step::Vouched),
        ("go", Step::Exchanged),
        ("back", Step::BackExchanged),
    ] {
        let stage = Stage::new();
        if verb == "back" {
            stage.go().unwrap();
        }
        stage.act(verb, step, Signal::KILL).wait().unwrap();
        let home = crate::tier::layout::home_of(&stage.path("tier"));
        fs::rename(&home, stage.path("away")).unwrap();
        for _ in 0..2 {
            let recovered = stage.recover();
            let [(path, error)] = recovered.left.as_slice() else {
                panic!("{step:?}: {recovered:?}")
            };
            assert_eq!(*path, stage.file());
            assert!(matches!(error, crate::tier::Error::TierMissing { .. }), "{step:?}: {error}");
        }
        fs::rename(stage.path("away"), &home).unwrap();
        assert!(stage.recover().is_settled());
        assert!(stage.read() == contents(), "{step:?}");
    }
}
