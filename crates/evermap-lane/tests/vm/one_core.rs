//! Machine with one core: what is reported, and that a program that never sleeps cannot keep the
//! core.

use std::collections::BTreeSet;

use evermap_lane::machine::{CheckResult, CheckTargets, Machine, check};

use crate::groups::Hierarchy;
use crate::lanes::{
    Fixture, SPIN, is_alive, is_ordinary, json, kill, online, policy_of, ran, wait_for,
};

fn statement(name: &str) -> CheckResult {
    let all = check(&Machine::detect().unwrap(), &CheckTargets::default());
    all.into_iter().find(|one| one.name == name).unwrap()
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn check_reports_that_the_only_core_can_only_be_lent() {
    let Some(fixture) = Fixture::new() else { return };
    assert_eq!(online(), BTreeSet::from([0]), "the machine has one core");
    let core = statement("core");
    assert!(core.able && core.why.contains("core 0 is the only core online"), "{core:?}");
    let exclusive = statement("exclusive-core");
    assert!(
        !exclusive.able && exclusive.why.contains("leave no core for other programs"),
        "{exclusive:?}"
    );
    assert!(exclusive.remedy.is_some_and(|remedy| remedy.contains("share = \"lend\"")));
    let checked = ran(std::process::Command::new(crate::lanes::EVERMAP).args(["lane", "check"]));
    assert_eq!(checked.code, 0, "a lane that lends is possible: {checked:?}");
    assert!(fixture.is_clean());
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn the_only_core_is_lent_and_reported() {
    let Some(fixture) = Fixture::new() else { return };
    let script = "cat /proc/$$/stat; sleep 0.1; exit 5";
    let (ran, report) = fixture.ended("[app]\nfps = 24\n", &["sh", "-c", script]);
    assert_eq!(ran.code, 5, "{ran:?}");
    let (_, fields) = ran.out.rsplit_once(") ").unwrap();
    assert_eq!(fields.split(' ').nth(38), Some("1"), "SCHED_FIFO: {ran:?}");
    assert_eq!(report["core"], 0);
    let why = report["core_why"].to_string();
    assert!(why.contains("core 0 is the only core online"), "{why}");
    assert!(fixture.is_clean());
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn holding_the_only_core_is_refused_and_changes_nothing() {
    let Some(fixture) = Fixture::new() else { return };
    let hierarchy = Hierarchy::find();
    let before = hierarchy.settings();
    for policy in ["[app]\nshare = \"hold\"\n", "[app]\nshare = \"hold\"\ncore = 0\n"] {
        let (ran, _) = fixture.ended(policy, &["true"]);
        assert_eq!(ran.code, 125, "{ran:?}");
        assert!(ran.err.contains("no core would be left"), "{ran:?}");
    }
    let (ran, _) = fixture.ended("[app]\ncore = 1\n", &["true"]);
    assert!(ran.code == 125 && ran.err.contains("the machine has only"), "{ran:?}");
    assert_eq!(hierarchy.settings(), before);
    assert!(fixture.is_clean());
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_program_that_never_sleeps_loses_its_priority_on_the_only_core_too() {
    let Some(fixture) = Fixture::new() else { return };
    let lane = fixture.start("[app]\nfps = 24\n", &SPIN);
    wait_for("the program to be demoted", || policy_of(lane.program) == Some(0));
    assert!(is_alive(lane.program), "the program continues");
    kill(lane.program);
    let ran = lane.ends();
    assert_eq!(ran.code, 137, "{ran:?}");
    let report = json(&fixture.path("report.json")).unwrap();
    assert_eq!(report["demotions"][0]["name"], "sh", "{report}");
    assert!(fixture.is_clean());
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_killed_lane_with_a_program_that_never_sleeps_is_undone_on_the_only_core() {
    let Some(fixture) = Fixture::new() else { return };
    // Long enough that no demotion happens first.
    let policy = "[app]\nfps = 24\n[guard]\nmax_overrun = 100000\n";
    for dies in ["lane", "guardian", "all"] {
        let mut lane = fixture.start(policy, &SPIN);
        assert_eq!(policy_of(lane.program), Some(1));
        match dies {
            "lane" => lane.kill(),
            "guardian" => kill(lane.guardian),
            _ => {
                lane.kill_all();
                fixture.undo();
                continue;
            }
        }
        wait_for("the lane to be undone", || fixture.is_clean());
        assert!(is_alive(lane.program) && is_ordinary(lane.program), "{dies}");
    }
}
