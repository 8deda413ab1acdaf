//! What is planned, in which order, and why the rest is not.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use evermap_lane::Placement;
use evermap_lane::tier::{Error, Journal, Plan, Request, Unsuitable, Watch, Why, place};

use crate::common::{
    act_of_nobody, argument, directory, is_root, is_started, memory, plan, request, skip,
};

fn why(tier: &Path, mode: Placement, file: &Path) -> Unsuitable {
    let plan = plan(tier, mode, &[file]);
    assert!(plan.files.is_empty(), "{plan:?}");
    match plan.skipped.as_slice() {
        [skipped] => match &skipped.why {
            Why::Unsuitable(why) => why.clone(),
            other => panic!("{other}"),
        },
        other => panic!("{}: {other:?}", file.display()),
    }
}

fn is_fit(tier: &Path, mode: Placement, file: &Path) {
    let plan = plan(tier, mode, &[file]);
    assert!(plan.files.len() == 1 && plan.skipped.is_empty(), "{plan:?}");
}

#[test]
fn what_cannot_be_placed_is_said_with_its_cause() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let at = |name: &str| files.path().join(name);
    for mode in [Placement::View, Placement::Switch] {
        assert_eq!(why(tier.path(), mode, files.path()), Unsuitable::Directory);
        fs::write(at("empty"), "").unwrap();
        assert_eq!(why(tier.path(), mode, &at("empty")), Unsuitable::Empty);
        assert_eq!(why(tier.path(), mode, Path::new("/dev/null")), Unsuitable::Special);
        let _ = rustix::fs::mknodat(
            rustix::fs::CWD,
            at("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        );
        assert_eq!(why(tier.path(), mode, &at("fifo")), Unsuitable::Special);
        fs::write(tier.path().join("there"), "x").unwrap();
        assert_eq!(why(tier.path(), mode, &tier.path().join("there")), Unsuitable::OnTier);
        fs::write(at("set-id"), "x").unwrap();
        fs::set_permissions(at("set-id"), fs::Permissions::from_mode(0o4755)).unwrap();
        assert_eq!(why(tier.path(), mode, &at("set-id")), Unsuitable::SetId);
        let _ = symlink("nowhere", at("dangling"));
        assert!(matches!(why(tier.path(), mode, &at("dangling")), Unsuitable::NotPermitted { .. }));
    }
}

#[test]
fn what_moves_has_one_name_and_room_for_another_beside_it() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let at = |name: &str| files.path().join(name);
    fs::write(at("file"), "x").unwrap();
    is_fit(tier.path(), Placement::Switch, &at("file"));
    fs::hard_link(at("file"), at("second")).unwrap();
    assert_eq!(
        why(tier.path(), Placement::Switch, &at("file")),
        Unsuitable::HardLinks { links: 2 }
    );
    is_fit(tier.path(), Placement::View, &at("file"));
    fs::remove_file(at("second")).unwrap();
    let taken = fs::canonicalize(files.path()).unwrap().join(".file.lane-orig");
    fs::write(&taken, "mine").unwrap();
    assert_eq!(
        why(tier.path(), Placement::Switch, &at("file")),
        Unsuitable::NameTaken { name: taken }
    );
    let long = at(&"n".repeat(255));
    fs::write(&long, "x").unwrap();
    assert!(matches!(why(tier.path(), Placement::Switch, &long), Unsuitable::NameTooLong { .. }));
    is_fit(tier.path(), Placement::View, &long);
}

#[test]
fn nothing_is_switched_to_memory() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let file = files.path().join("file");
    fs::write(&file, "x").unwrap();
    let plan = plan(tier.path(), Placement::Switch, &[&file]);
    assert!(!plan.tier.is_lasting());
    let journal = Journal::at(&files.path().join("journal")).unwrap();
    let error = place(&plan, Some(&journal), &Watch::default()).unwrap_err();
    assert!(matches!(&error, Error::NotLasting { why, .. } if why.contains("restart")), "{error}");
    assert!(!file.is_symlink());
}

#[test]
fn whoever_has_a_file_open_is_named() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let file = files.path().join("file");
    fs::write(&file, "x").unwrap();
    for writes in [false, true] {
        let opened = fs::OpenOptions::new().read(true).append(writes).open(&file).unwrap();
        let mut child =
            Command::new("sleep").arg("600").stdin(Stdio::from(opened)).spawn().unwrap();
        let switched = plan(tier.path(), Placement::Switch, &[&file]);
        let viewed = plan(tier.path(), Placement::View, &[&file]);
        child.kill().unwrap();
        child.wait().unwrap();
        let is_named = |plan: &Plan| {
            plan.skipped.iter().any(|skipped| {
                matches!(&skipped.why, Why::Unsuitable(Unsuitable::Open { by }) if by.iter().any(|by| by.process == child.id() && by.writes == writes))
            })
        };
        assert!(is_named(&switched), "{switched:?}");
        assert_eq!(is_named(&viewed), writes, "readers are in nobody's way: {viewed:?}");
    }
    is_fit(tier.path(), Placement::Switch, &file);
}

#[test]
fn files_go_as_they_are_named_unless_what_was_read_of_them_says_otherwise() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let at = |name: &str| fs::canonicalize(files.path()).unwrap().join(name);
    for (name, bytes) in [("a.mkv", 400_000), ("b.mkv", 8_000), ("c.idx", 4_000)] {
        fs::write(at(name), vec![1; bytes]).unwrap();
    }
    let request = Request {
        files: ["c.idx", "*.mkv", "a.mkv", "*.none"].map(at).to_vec(),
        ..request(tier.path(), Placement::View, &[])
    };
    let names =
        |plan: &Plan| -> Vec<PathBuf> { plan.files.iter().map(|file| file.path.clone()).collect() };
    let named = Plan::make(&request).unwrap();
    assert_eq!(names(&named), [at("c.idx"), at("a.mkv"), at("b.mkv")], "each once");
    assert_eq!(named.unmatched, [at("*.none").display().to_string()]);
    let uses = vec![(at("a.mkv"), 400_000), (at("b.mkv"), 900_000), (at("b.mkv"), 900_000)];
    let ranked = Plan::make(&Request { uses, ..request.clone() }).unwrap();
    assert_eq!(names(&ranked), [at("b.mkv"), at("a.mkv"), at("c.idx")]);
    let tight = Plan::make(&Request { budget_bytes: Some(20 << 10), ..request }).unwrap();
    assert_eq!(names(&tight), [at("c.idx"), at("b.mkv")]);
    assert!(matches!(tight.skipped[0].why, Why::OverBudget { .. }));
}

#[test]
fn a_pattern_that_is_none_is_named() {
    let Some(tier) = memory() else { return };
    let error =
        Plan::make(&request(tier.path(), Placement::View, &[Path::new("/a/***")])).unwrap_err();
    assert!(matches!(&error, Error::Pattern { pattern, .. } if pattern == "/a/***"), "{error}");
}

#[test]
fn a_path_stands_for_itself_whatever_is_in_its_name() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let file = files.path().join("[1]*?.mkv");
    fs::write(&file, "x").unwrap();
    fs::write(files.path().join("1.mkv"), "x").unwrap();
    is_fit(tier.path(), Placement::View, &file);
}

#[test]
fn an_unchangeable_file_is_copied_and_not_moved() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let file = files.path().join("file");
    fs::write(&file, "x").unwrap();
    let set = |how: &str| {
        let done = Command::new("chattr").arg(how).arg(&file).stderr(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    if !set("+i") {
        return skip(
            "only root, with chattr and a file system that has it, makes a file unchangeable",
        );
    }
    let switched = plan(tier.path(), Placement::Switch, &[&file]);
    let viewed = plan(tier.path(), Placement::View, &[&file]);
    assert!(set("-i"));
    assert_eq!(switched.skipped[0].why, Why::Unsuitable(Unsuitable::Immutable));
    assert_eq!(viewed.files.len(), 1);
}

#[test]
fn what_is_somebody_elses_or_in_a_closed_directory_is_not_moved() {
    if !is_root() {
        return skip("only root can become another user");
    }
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let file = files.path().join("file");
    fs::write(&file, "x").unwrap();
    let closed = files.path().join("closed");
    fs::create_dir(&closed).unwrap();
    let own = closed.join("own");
    fs::write(&own, "x").unwrap();
    std::os::unix::fs::chown(&own, Some(65534), Some(65534)).unwrap();
    fs::write(closed.join("secret"), "x").unwrap();
    fs::set_permissions(closed.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(tier.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    act_of_nobody("plans::act_of_planning", &[("PLACE", files.path()), ("TIER", tier.path())]);
}

#[test]
#[ignore = "a program that another test starts"]
fn act_of_planning() {
    if !is_started() {
        return;
    }
    let (place, tier) = (argument("PLACE"), argument("TIER"));
    let refused = |file: &str, mode, words: &str| match why(&tier, mode, &place.join(file)) {
        Unsuitable::NotPermitted { what } => assert!(what.contains(words), "{what}"),
        other => panic!("{other}"),
    };
    refused("file", Placement::Switch, "cannot write to");
    refused("closed/own", Placement::Switch, "cannot write to");
    refused("closed/secret", Placement::View, "cannot read it");
    is_fit(&tier, Placement::View, &place.join("file"));
    is_fit(&tier, Placement::View, &place.join("closed/own"));
}
