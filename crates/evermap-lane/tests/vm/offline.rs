//! Cores that are switched off, while a lane uses them and before one is requested.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use evermap_lane::machine::CoreRefusal;
use evermap_lane::run::{Options, Program, run};
use evermap_lane::{Error, Lane as LaneOfThread, Policy};

use crate::groups::Hierarchy;
use crate::lanes::{
    EVERMAP, Fixture, Lane, SLEEP, affinity, bind, is_alive, is_ordinary, kill, online, policy_of,
    wait_for,
};

const CORE: u32 = 1;
const OTHER: u32 = 2;

/// Core that is switched off. Switched on again when dropped.
struct Off(PathBuf);

impl Off {
    fn switch(core: u32) -> Self {
        Self::try_switch(core).unwrap()
    }

    /// Switches off a core. Returns `None` if the kernel refuses because the core is the only one
    /// of a partition: Linux 6.12 reports it as busy.
    fn try_switch(core: u32) -> Option<Self> {
        let path = PathBuf::from(format!("/sys/devices/system/cpu/cpu{core}/online"));
        match fs::write(&path, "0") {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                println!("SKIPPED: this kernel does not switch off a held core");
                return None;
            }
            result => result.unwrap(),
        }
        assert!(!online().contains(&core));
        Some(Self(path))
    }
}

impl Drop for Off {
    fn drop(&mut self) {
        fs::write(&self.0, "1").unwrap();
    }
}

/// Runs `work` with this thread bound to two cores. Children started by `work` inherit that.
fn within<T>(cores: [u32; 2], work: impl FnOnce() -> T) -> T {
    bind(None, &cores.into());
    let done = work();
    bind(None, &online());
    done
}

fn of_core(core: u32, more: &str) -> String {
    format!("[app]\nfps = 24\ncore = {core}\n{more}")
}

/// Checks that the lane has ended and its program has its original policy.
fn verify_ended(fixture: &Fixture, lane: &Lane) {
    wait_for("the lane to be undone", || fixture.is_clean());
    assert!(is_alive(lane.program));
    wait_for("the program to be ordinary", || is_ordinary(lane.program));
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_lane_moves_to_another_core_when_its_lent_core_goes_offline() {
    let Some(fixture) = Fixture::new() else { return };
    // The first core cannot be switched off.
    let lane = within([CORE, OTHER], || fixture.start("[app]\nfps = 24\n", &SLEEP));
    let other = CORE + OTHER - lane.core;
    let off = Off::switch(lane.core);
    wait_for("the lane to move", || affinity(lane.program) == BTreeSet::from([other]));
    wait_for("its policy", || policy_of(lane.program) == Some(1));
    assert_eq!(fixture.journals().len(), 1);
    drop(off);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(
        affinity(lane.program),
        BTreeSet::from([other]),
        "the program stays on its new core"
    );
    let core = lane.core;
    kill(lane.program);
    let ran = lane.ends();
    let message = format!("core {core} went offline: the lane moved to core {other}");
    assert!(ran.code == 137 && ran.err.contains(&message), "{ran:?}");
    wait_for("the lane to be undone", || fixture.is_clean());
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_named_core_that_goes_offline_ends_the_lane_and_the_program_runs_on() {
    let Some(fixture) = Fixture::new() else { return };
    let lane = fixture.start(&of_core(CORE, ""), &SLEEP);
    let off = Off::switch(CORE);
    verify_ended(&fixture, &lane);
    drop(off);
    wait_for("the program to have the core again", || affinity(lane.program).contains(&CORE));
    kill(lane.program);
    let ran = lane.ends();
    assert!(ran.err.contains("core 1 went offline: the lane ended"), "{ran:?}");
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_held_core_that_goes_offline_ends_the_lane_and_the_groups_are_as_before() {
    let Some(fixture) = Fixture::new() else { return };
    let hierarchy = Hierarchy::find();
    let before = hierarchy.settings();
    let lane = fixture.start(&of_core(CORE, "share = \"hold\"\n"), &SLEEP);
    let Some(off) = Off::try_switch(CORE) else {
        assert_eq!((fixture.journals().len(), policy_of(lane.program)), (1, Some(1)));
        kill(lane.program);
        lane.ends();
        assert_eq!(hierarchy.settings(), before);
        return;
    };
    verify_ended(&fixture, &lane);
    assert_eq!(hierarchy.of_lanes(), Vec::<PathBuf>::new());
    assert_eq!(hierarchy.of(lane.program), hierarchy.of(std::process::id()));
    drop(off);
    wait_for("the groups to have the core", || hierarchy.settings() == before);
    wait_for("the program to have it", || affinity(lane.program).contains(&CORE));
    kill(lane.program);
    let ran = lane.ends();
    assert!(ran.err.contains("went offline") || ran.err.contains("no longer held"), "{ran:?}");
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_lane_killed_while_its_core_is_offline_is_undone() {
    let Some(fixture) = Fixture::new() else { return };
    let hierarchy = Hierarchy::find();
    let before = hierarchy.settings();
    for share in ["lend", "hold"] {
        let policy = of_core(CORE, &format!("share = \"{share}\"\n"));
        let mut lane = fixture.start(&policy, &SLEEP);
        let program = std::mem::take(&mut lane.program);
        let off = {
            // Stop the lane, so that it does not react to the offline core before all are dead.
            let pid = rustix::process::Pid::from_raw(lane.child.id() as i32).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
            Off::try_switch(CORE)
        };
        lane.kill_all();
        fixture.undo();
        assert!(is_alive(program), "{share}");
        wait_for("the program to be ordinary", || is_ordinary(program));
        drop(off);
        wait_for("the groups to be as before", || hierarchy.settings() == before);
        wait_for("the program to have the core", || affinity(program).contains(&CORE));
        kill(program);
    }
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_lane_on_an_offline_core_is_refused_with_the_reason() {
    let Some(fixture) = Fixture::new() else { return };
    let _off = Off::switch(CORE);
    for share in ["lend", "hold"] {
        let text = of_core(CORE, &format!("share = \"{share}\"\n"));
        let options = Options {
            state: Some(fixture.state.clone()),
            helper: Some(EVERMAP.into()),
            ..Options::default()
        };
        let program =
            Program { path: "/bin/true".into(), name: "true".into(), arguments: Vec::new() };
        let refused = run(&Policy::parse(&text).unwrap(), &program, &options).unwrap_err();
        let is_offline = matches!(
            &refused,
            Error::CoreRefused { core: CORE, why: CoreRefusal::Offline { online } } if !online.contains(CORE)
        );
        assert!(is_offline, "{refused:?}");
        let entered = LaneOfThread::enter_in(&Policy::parse(&text).unwrap(), &fixture.state);
        let is_offline = matches!(
            &entered,
            Err(Error::CoreRefused { core: CORE, why: CoreRefusal::Offline { .. } })
        );
        assert!(is_offline, "{:?}", entered.err());
        let (ran, _) = fixture.ended(&text, &["true"]);
        assert!(ran.code == 125 && ran.err.contains("it is offline"), "{ran:?}");
        assert!(fixture.is_clean());
    }
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn frames_continue_when_their_core_goes_offline() {
    let Some(fixture) = Fixture::new() else { return };
    let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let before = affinity(own);
    let policy = Policy::parse("[app]\nperiod_us = 20000\ncore = 1\n").unwrap();
    let mut lane = LaneOfThread::enter_in(&policy, &fixture.state).unwrap();
    let mut off = None;
    for number in 0..40 {
        if number == 10 {
            off = Some(lane.outside(|| Off::switch(CORE)));
        }
        drop(lane.frame().unwrap().unwrap());
    }
    let report = lane.leave();
    assert_eq!(report.frames, 40, "{report}");
    drop(off);
    assert!(fixture.is_clean());
    assert_eq!((policy_of(own), affinity(own)), (Some(0), before));
}
