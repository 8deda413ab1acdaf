//! Plans: which files are selected, in which order, and why others are skipped.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use evermap_lane::Placement;
use evermap_lane::tier::{Error, Journal, Plan, Request, SkipReason, Unsuitable, Watch, place};

use crate::common::{
    argument, directory, is_helper, is_root, memory, plan, request, run_as_nobody, skip,
};

fn refusal(tier: &Path, mode: Placement, file: &Path) -> Unsuitable {
    let plan = plan(tier, mode, &[file]);
    assert!(plan.files.is_empty(), "{plan:?}");
    match plan.skipped.as_slice() {
        [skipped] => match &skipped.why {
            SkipReason::Unsuitable(why) => why.clone(),
            other => panic!("{other}"),
        },
        other => panic!("{}: {other:?}", file.display()),
    }
}

fn assert_placeable(tier: &Path, mode: Placement, file: &Path) {
    let plan = plan(tier, mode, &[file]);
    assert!(plan.files.len() == 1 && plan.skipped.is_empty(), "{plan:?}");
}

#[test]
fn files_that_cannot_be_placed_are_skipped_with_the_reason() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let at = |name: &str| files.path().join(name);
    for mode in [Placement::View, Placement::Switch] {
        assert_eq!(refusal(tier.path(), mode, files.path()), Unsuitable::Directory);
        fs::write(at("empty"), "").unwrap();
        assert_eq!(refusal(tier.path(), mode, &at("empty")), Unsuitable::Empty);
        assert_eq!(refusal(tier.path(), mode, Path::new("/dev/null")), Unsuitable::Special);
        let _ = rustix::fs::mknodat(
            rustix::fs::CWD,
            at("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        );
        assert_eq!(refusal(tier.path(), mode, &at("fifo")), Unsuitable::Special);
        fs::write(tier.path().join("there"), "x").unwrap();
        assert_eq!(refusal(tier.path(), mode, &tier.path().join("there")), Unsuitable::OnTier);
        fs::write(at("set-id"), "x").unwrap();
        fs::set_permissions(at("set-id"), fs::Permissions::from_mode(0o4755)).unwrap();
        assert_eq!(refusal(tier.path(), mode, &at("set-id")), Unsuitable::SetId);
        let _ = symlink("nowhere", at("dangling"));
        assert!(matches!(
            refusal(tier.path(), mode, &at("dangling")),
            Unsuitable::NotPermitted { .. }
        ));
    }
}

#[test]
fn a_file_to_switch_needs_one_name_and_a_free_name_next_to_it() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let at = |name: &str| files.path().join(name);
    fs::write(at("file"), "x").unwrap();
    assert_placeable(tier.path(), Placement::Switch, &at("file"));
    fs::hard_link(at("file"), at("second")).unwrap();
    assert_eq!(
        refusal(tier.path(), Placement::Switch, &at("file")),
        Unsuitable::HardLinks { links: 2 }
    );
    assert_placeable(tier.path(), Placement::View, &at("file"));
    fs::remove_file(at("second")).unwrap();
    let taken = fs::canonicalize(files.path()).unwrap().join(".file.lane-orig");
    fs::write(&taken, "mine").unwrap();
    assert_eq!(
        refusal(tier.path(), Placement::Switch, &at("file")),
        Unsuitable::NameTaken { name: taken }
    );
    let long = at(&"n".repeat(255));
    fs::write(&long, "x").unwrap();
    assert!(matches!(
        refusal(tier.path(), Placement::Switch, &long),
        Unsuitable::NameTooLong { .. }
    ));
    assert_placeable(tier.path(), Placement::View, &long);
}

#[test]
fn no_file_is_switched_to_memory() {
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
fn processes_with_an_open_file_are_named() {
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
                matches!(&skipped.why, SkipReason::Unsuitable(Unsuitable::Open { by }) if by.iter().any(|by| by.process == child.id() && by.writes == writes))
            })
        };
        assert!(is_named(&switched), "{switched:?}");
        assert_eq!(is_named(&viewed), writes, "readers do not prevent a view: {viewed:?}");
    }
    assert_placeable(tier.path(), Placement::Switch, &file);
}

#[test]
fn files_are_ordered_as_named_or_by_bytes_read() {
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
    assert!(matches!(tight.skipped[0].why, SkipReason::OverBudget { .. }));
}

#[test]
fn an_invalid_pattern_is_named_in_the_error() {
    let Some(tier) = memory() else { return };
    let error =
        Plan::make(&request(tier.path(), Placement::View, &[Path::new("/a/***")])).unwrap_err();
    assert!(matches!(&error, Error::Pattern { pattern, .. } if pattern == "/a/***"), "{error}");
}

#[test]
fn an_existing_path_matches_itself_even_with_pattern_characters() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let file = files.path().join("[1]*?.mkv");
    fs::write(&file, "x").unwrap();
    fs::write(files.path().join("1.mkv"), "x").unwrap();
    assert_placeable(tier.path(), Placement::View, &file);
}

#[test]
fn an_immutable_file_is_copied_and_not_switched() {
    let (files, Some(tier)) = (directory(), memory()) else { return };
    let file = files.path().join("file");
    fs::write(&file, "x").unwrap();
    let set = |how: &str| {
        let done = Command::new("chattr").arg(how).arg(&file).stderr(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    if !set("+i") {
        return skip("an immutable file needs root, chattr and support of the file system");
    }
    let switched = plan(tier.path(), Placement::Switch, &[&file]);
    let viewed = plan(tier.path(), Placement::View, &[&file]);
    assert!(set("-i"));
    assert_eq!(switched.skipped[0].why, SkipReason::Unsuitable(Unsuitable::Immutable));
    assert_eq!(viewed.files.len(), 1);
}

#[test]
fn files_of_another_user_or_in_a_closed_directory_are_not_switched() {
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
    run_as_nobody("plans::helper_that_plans", &[("PLACE", files.path()), ("TIER", tier.path())]);
}

#[test]
#[ignore = "a helper process that another test starts"]
fn helper_that_plans() {
    if !is_helper() {
        return;
    }
    let (place, tier) = (argument("PLACE"), argument("TIER"));
    let refused = |file: &str, mode, words: &str| match refusal(&tier, mode, &place.join(file)) {
        Unsuitable::NotPermitted { what } => assert!(what.contains(words), "{what}"),
        other => panic!("{other}"),
    };
    refused("file", Placement::Switch, "cannot write to");
    refused("closed/own", Placement::Switch, "cannot write to");
    refused("closed/secret", Placement::View, "cannot read it");
    assert_placeable(&tier, Placement::View, &place.join("file"));
    assert_placeable(&tier, Placement::View, &place.join("closed/own"));
}
