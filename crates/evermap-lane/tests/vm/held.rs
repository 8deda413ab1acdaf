//! Cores held through real control groups: version 2 alone, or version 1 beside it. After any
//! process is killed, the groups, their settings and all other processes are as before.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use evermap_lane::machine::{CheckTargets, Machine, check};

use crate::groups::{Hierarchy, Others};
use crate::lanes::{Fixture, Lane, SLEEP, affinity, is_alive, is_ordinary, kill, list, wait_for};

/// Neither the core of the machine's init program nor the last core.
const CORE: u32 = 1;

fn hold(core: u32) -> String {
    format!("[app]\nfps = 24\nshare = \"hold\"\ncore = {core}\n")
}

/// The machine with other programs on it, and its initial state.
struct HoldSetup {
    fixture: Fixture,
    hierarchy: Hierarchy,
    others: Others,
    settings: String,
    state: Vec<(String, BTreeSet<u32>, Option<u32>)>,
}

impl HoldSetup {
    fn new() -> Option<Self> {
        let fixture = Fixture::new()?;
        let hierarchy = Hierarchy::find();
        let others = Others::start(CORE);
        let (settings, state) = (hierarchy.settings(), others.state());
        Some(Self { fixture, hierarchy, others, settings, state })
    }

    /// Starts a lane that holds the core, and checks that it has the core exclusively.
    fn start(&self) -> Lane {
        let lane = self.fixture.start(&hold(CORE), &SLEEP);
        assert_eq!(lane.core, CORE);
        self.others.verify_exclusive(CORE, lane.program);
        let own = self.hierarchy.mount.join(format!("evermap-lane-{CORE}"));
        let inside = fs::read_to_string(own.join("cgroup.procs")).unwrap();
        assert_eq!(inside.trim(), lane.program.to_string());
        match self.hierarchy.version {
            1 => {
                let exclusive = fs::read_to_string(own.join("cpuset.cpu_exclusive")).unwrap();
                assert_eq!(exclusive.trim(), "1");
            }
            _ => {
                let partition = fs::read_to_string(own.join("cpuset.cpus.partition")).unwrap();
                assert_eq!(partition.trim(), "root");
            }
        }
        lane
    }

    fn is_undone(&self) -> bool {
        self.fixture.is_clean() && self.hierarchy.of_lanes().is_empty()
    }

    fn verify_restored(&self) {
        wait_for("the lane to be undone", || self.is_undone());
        assert_eq!(self.hierarchy.settings(), self.settings);
        assert_eq!(self.others.state(), self.state);
    }

    /// Checks that a program whose lane has ended runs like this process.
    fn verify_continues(&self, program: u32) {
        assert!(is_alive(program), "a lane does not end its program");
        wait_for("the program to be ordinary", || is_ordinary(program));
        assert_eq!(self.hierarchy.of(program), self.hierarchy.of(std::process::id()));
    }
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_held_core_is_exclusive_and_afterwards_the_machine_is_as_before() {
    let Some(setup) = HoldSetup::new() else { return };
    let lane = setup.start();
    kill(lane.program);
    assert_eq!(lane.ends().code, 137);
    setup.verify_restored();
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_lane_that_is_killed_gives_its_core_back() {
    let Some(setup) = HoldSetup::new() else { return };
    let mut lane = setup.start();
    lane.kill();
    setup.verify_restored();
    setup.verify_continues(lane.program);
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_killed_guardian_is_detected_and_the_core_is_given_back() {
    let Some(setup) = HoldSetup::new() else { return };
    let lane = setup.start();
    kill(lane.guardian);
    setup.verify_restored();
    setup.verify_continues(lane.program);
    kill(lane.program);
    let ran = lane.ends();
    assert!(ran.err.contains("the guardian was killed"), "{ran:?}");
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn when_all_are_killed_at_once_undo_gives_the_core_back() {
    let Some(setup) = HoldSetup::new() else { return };
    let mut lane = setup.start();
    lane.kill_all();
    assert_eq!(setup.fixture.journals().len(), 1);
    assert!(!setup.hierarchy.of_lanes().is_empty(), "no process was left to undo the lane");
    setup.fixture.undo();
    setup.verify_restored();
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn when_lane_and_guardian_are_killed_the_next_lane_gives_the_core_back() {
    let Some(setup) = HoldSetup::new() else { return };
    let mut lane = setup.start();
    let program = std::mem::take(&mut lane.program);
    lane.kill_all();
    let (ran, report) = setup.fixture.ended(&hold(CORE), &["true"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(report["events"].to_string().contains("was left behind"), "{report}");
    setup.verify_restored();
    setup.verify_continues(program);
    kill(program);
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_lane_that_is_killed_at_any_moment_of_its_start_leaves_nothing() {
    const MOMENTS: u32 = 20;
    let Some(setup) = HoldSetup::new() else { return };
    let began = Instant::now();
    drop(setup.start());
    let start = began.elapsed();
    setup.fixture.undo();
    let mut held = 0;
    for moment in 0..MOMENTS {
        let mut lane = setup.fixture.lane(&hold(CORE), &["sleep", "5"]).spawn().unwrap();
        std::thread::sleep(start * moment / MOMENTS);
        held += u32::from(!setup.hierarchy.of_lanes().is_empty());
        lane.kill().unwrap();
        lane.wait().unwrap();
        let undone = setup.fixture.run(&["undo"]);
        assert_eq!(undone.code, 0, "at moment {moment}: {undone:?}");
        setup.verify_restored();
    }
    assert!(held > 0, "no kill came after the groups were made");
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn processes_started_by_the_program_leave_the_core() {
    let Some(setup) = HoldSetup::new() else { return };
    let file = setup.fixture.path("started");
    let script = format!("sleep 1000 > /dev/null 2>&1 & echo $! > {}; wait", file.display());
    let lane = setup.fixture.start(&hold(CORE), &["sh", "-c", &script]);
    let mut started = 0;
    wait_for("a child of the program", || {
        started = fs::read_to_string(&file).unwrap_or_default().trim().parse().unwrap_or(0);
        started != 0
    });
    wait_for("the child to leave the core", || !affinity(started).contains(&CORE));
    let own = setup.hierarchy.mount.join(format!("evermap-lane-{CORE}/cgroup.procs"));
    let inside = || fs::read_to_string(&own).unwrap();
    wait_for("the child to leave the group", || inside().trim() == lane.program.to_string());
    kill(lane.program);
    let ran = lane.ends();
    assert!(ran.err.contains("continue as ordinary ones"), "{ran:?}");
    setup.verify_restored();
    setup.verify_continues(started);
    kill(started);
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn holding_the_last_core_is_refused() {
    let Some(setup) = HoldSetup::new() else { return };
    if setup.hierarchy.version == 1 {
        // With version 1, a second lane would start in a group of the first one.
        return;
    }
    let lanes = [1, 2].map(|core| setup.fixture.start(&hold(core), &SLEEP));
    let held = setup.hierarchy.settings();
    let (ran, _) = setup.fixture.ended(&hold(0), &["true"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("no core would be left"), "{ran:?}");
    assert_eq!(setup.hierarchy.settings(), held, "a refused lane changes nothing");
    // The first lane ends first. The controller that it enabled stays enabled for the other one.
    for lane in lanes {
        setup.others.verify_exclusive(lane.core, lane.program);
        kill(lane.program);
        assert_eq!(lane.ends().code, 137);
    }
    setup.verify_restored();
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_core_of_another_group_is_refused_and_the_group_is_unchanged() {
    let Some(fixture) = Fixture::new() else { return };
    let hierarchy = Hierarchy::find();
    let group = hierarchy.make("anothers");
    if hierarchy.version == 2 {
        fs::write(hierarchy.mount.join("cgroup.subtree_control"), "+cpuset").unwrap();
    }
    fs::write(group.path.join("cpuset.cpus"), CORE.to_string()).unwrap();
    let before = hierarchy.settings();
    let (ran, _) = fixture.ended(&hold(CORE), &["true"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("anothers"), "{ran:?}");
    // Another core is free.
    let (ran, _) = fixture.ended(&hold(2), &["true"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(hierarchy.settings(), before);
    drop(group);
    if hierarchy.version == 2 {
        fs::write(hierarchy.mount.join("cgroup.subtree_control"), "-cpuset").unwrap();
    }
}

/// Returns the command, started in the group with this list of processes.
fn from_group(list: &Path, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo 0 > \"$0\"; exec \"$@\""]).arg(list);
    shell.arg(command.get_program()).args(command.get_args());
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_program_returns_to_its_nested_group() {
    let Some(setup) = HoldSetup::new() else { return };
    if setup.hierarchy.version == 1 {
        // With version 1, a group that is not exclusive cannot give a core away.
        return;
    }
    let session = setup.hierarchy.make("session");
    let inner = setup.hierarchy.make("session/inner");
    let home = inner.path.join("cgroup.procs");
    let before = setup.hierarchy.settings();
    for dies in ["program", "lane", "all"] {
        let lane = setup.fixture.lane(&hold(CORE), &SLEEP);
        let mut lane = setup.fixture.started(from_group(&home, &lane), SLEEP[0]);
        setup.others.verify_exclusive(CORE, lane.program);
        assert_eq!(setup.hierarchy.of(lane.program), format!("/evermap-lane-{CORE}"));
        match dies {
            "program" => kill(lane.program),
            "lane" => lane.kill(),
            _ => {
                lane.kill_all();
                setup.fixture.undo();
            }
        }
        wait_for("the lane to be undone", || setup.is_undone());
        if dies == "lane" {
            wait_for("the program to be back in its group", || {
                setup.hierarchy.of(lane.program) == "/session/inner"
            });
            wait_for("the program to be ordinary", || is_ordinary(lane.program));
        }
        drop(lane);
        assert_eq!(setup.hierarchy.settings(), before, "{dies}");
        assert_eq!(setup.others.state(), setup.state, "{dies}");
    }
    drop((inner, session));
    setup.verify_restored();
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn check_reports_the_version_that_would_hold_a_core() {
    let Some(_place) = Fixture::new() else { return };
    let hierarchy = Hierarchy::find();
    let statements = check(&Machine::detect().unwrap(), &CheckTargets::default());
    let exclusive = statements.iter().find(|one| one.name == "exclusive-core").unwrap();
    let version = format!("version {}", hierarchy.version);
    assert!(exclusive.able && exclusive.why.contains(&version), "{exclusive:?}");
    let file = match hierarchy.version {
        1 => "cpuset.effective_cpus",
        _ => "cpuset.cpus.effective",
    };
    let cores = fs::read_to_string(hierarchy.mount.join(file)).unwrap();
    assert_eq!(list(&cores), crate::lanes::online());
}
