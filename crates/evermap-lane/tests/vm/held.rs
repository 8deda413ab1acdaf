//! Cores that are held by the machine's real control groups: version 2 alone, or version 1 beside it. Whoever dies, the groups, their settings
//! and everybody else are afterwards what they were before.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use evermap_lane::machine::{Machine, Subject, check};

use crate::groups::{Hierarchy, Others};
use crate::lanes::{Lane, Place, SLEEP, affinity, is_alive, is_ordinary, kill, list, wait_for};

/// Neither that of the machine's first program nor the last one.
const CORE: u32 = 1;

fn hold(core: u32) -> String {
    format!("[app]\nfps = 24\nshare = \"hold\"\ncore = {core}\n")
}

/// The machine, with others on it, and what all of it was before.
struct Stage {
    place: Place,
    hierarchy: Hierarchy,
    others: Others,
    settings: String,
    state: Vec<(String, BTreeSet<u32>, Option<u32>)>,
}

impl Stage {
    fn new() -> Option<Self> {
        let place = Place::new()?;
        let hierarchy = Hierarchy::find();
        let others = Others::start(CORE);
        let (settings, state) = (hierarchy.settings(), others.state());
        Some(Self { place, hierarchy, others, settings, state })
    }

    /// A lane that holds the core, which is seen to be its alone.
    fn start(&self) -> Lane {
        let lane = self.place.start(&hold(CORE), &SLEEP);
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

    fn is_as_before(&self) -> bool {
        self.place.is_clean() && self.hierarchy.of_lanes().is_empty()
    }

    fn verify_as_before(&self) {
        wait_for("the lane to be undone", || self.is_as_before());
        assert_eq!(self.hierarchy.settings(), self.settings);
        assert_eq!(self.others.state(), self.state);
    }

    /// A program that its lane has left runs as this one does.
    fn verify_left(&self, program: u32) {
        assert!(is_alive(program), "the program is not the lane's to end");
        wait_for("the program to be ordinary", || is_ordinary(program));
        assert_eq!(self.hierarchy.of(program), self.hierarchy.of(std::process::id()));
    }
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_held_core_is_its_programs_alone_and_afterwards_all_is_as_before() {
    let Some(stage) = Stage::new() else { return };
    let lane = stage.start();
    kill(lane.program);
    assert_eq!(lane.ends().code, 137);
    stage.verify_as_before();
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_lane_that_is_killed_gives_its_core_back() {
    let Some(stage) = Stage::new() else { return };
    let mut lane = stage.start();
    lane.kill();
    stage.verify_as_before();
    stage.verify_left(lane.program);
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_guardian_that_is_killed_is_noticed_and_the_core_given_back() {
    let Some(stage) = Stage::new() else { return };
    let lane = stage.start();
    kill(lane.guardian);
    stage.verify_as_before();
    stage.verify_left(lane.program);
    kill(lane.program);
    let ran = lane.ends();
    assert!(ran.err.contains("the guardian was killed"), "{ran:?}");
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn when_all_are_killed_at_once_undo_gives_the_core_back() {
    let Some(stage) = Stage::new() else { return };
    let mut lane = stage.start();
    lane.kill_all();
    assert_eq!(stage.place.journals().len(), 1);
    assert!(!stage.hierarchy.of_lanes().is_empty(), "nobody was left to undo it");
    stage.place.undo();
    stage.verify_as_before();
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn when_lane_and_guardian_are_killed_the_next_lane_gives_the_core_back() {
    let Some(stage) = Stage::new() else { return };
    let mut lane = stage.start();
    let program = std::mem::take(&mut lane.program);
    lane.kill_all();
    let (ran, report) = stage.place.ended(&hold(CORE), &["true"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(report["events"].to_string().contains("had been left behind"), "{report}");
    stage.verify_as_before();
    stage.verify_left(program);
    kill(program);
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_lane_that_is_killed_at_any_moment_of_its_start_leaves_nothing() {
    const MOMENTS: u32 = 20;
    let Some(stage) = Stage::new() else { return };
    let began = Instant::now();
    drop(stage.start());
    let start = began.elapsed();
    stage.place.undo();
    let mut held = 0;
    for moment in 0..MOMENTS {
        let mut lane = stage.place.lane(&hold(CORE), &["sleep", "5"]).spawn().unwrap();
        std::thread::sleep(start * moment / MOMENTS);
        held += u32::from(!stage.hierarchy.of_lanes().is_empty());
        lane.kill().unwrap();
        lane.wait().unwrap();
        let undone = stage.place.run(&["undo"]);
        assert_eq!(undone.code, 0, "at moment {moment}: {undone:?}");
        stage.verify_as_before();
    }
    assert!(held > 0, "no kill came after the groups were made");
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn what_the_program_starts_leaves_the_core() {
    let Some(stage) = Stage::new() else { return };
    let file = stage.place.path("started");
    let script = format!("sleep 1000 > /dev/null 2>&1 & echo $! > {}; wait", file.display());
    let lane = stage.place.start(&hold(CORE), &["sh", "-c", &script]);
    let mut started = 0;
    wait_for("a process of the program's", || {
        started = fs::read_to_string(&file).unwrap_or_default().trim().parse().unwrap_or(0);
        started != 0
    });
    wait_for("it to leave the core", || !affinity(started).contains(&CORE));
    let own = stage.hierarchy.mount.join(format!("evermap-lane-{CORE}/cgroup.procs"));
    let inside = || fs::read_to_string(&own).unwrap();
    wait_for("it to leave the group", || inside().trim() == lane.program.to_string());
    kill(lane.program);
    let ran = lane.ends();
    assert!(ran.err.contains("run on, as ordinary ones"), "{ran:?}");
    stage.verify_as_before();
    stage.verify_left(started);
    kill(started);
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn the_last_core_is_nobodys_to_hold() {
    let Some(stage) = Stage::new() else { return };
    if stage.hierarchy.version == 1 {
        // There whoever starts a second lane is in a group of the first one's.
        return;
    }
    let lanes = [1, 2].map(|core| stage.place.start(&hold(core), &SLEEP));
    let held = stage.hierarchy.settings();
    let (ran, _) = stage.place.ended(&hold(0), &["true"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("no other core would be left"), "{ran:?}");
    assert_eq!(stage.hierarchy.settings(), held, "nothing was changed for a lane that was refused");
    // The first to come is the first to go: what it had enabled is for the other one still.
    for lane in lanes {
        stage.others.verify_exclusive(lane.core, lane.program);
        kill(lane.program);
        assert_eq!(lane.ends().code, 137);
    }
    stage.verify_as_before();
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_core_that_anothers_group_has_is_refused_and_that_is_not_touched() {
    let Some(place) = Place::new() else { return };
    let hierarchy = Hierarchy::find();
    let group = hierarchy.make("anothers");
    if hierarchy.version == 2 {
        fs::write(hierarchy.mount.join("cgroup.subtree_control"), "+cpuset").unwrap();
    }
    fs::write(group.path.join("cpuset.cpus"), CORE.to_string()).unwrap();
    let before = hierarchy.settings();
    let (ran, _) = place.ended(&hold(CORE), &["true"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("anothers"), "{ran:?}");
    // Another core is nobody's.
    let (ran, _) = place.ended(&hold(2), &["true"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(hierarchy.settings(), before);
    drop(group);
    if hierarchy.version == 2 {
        fs::write(hierarchy.mount.join("cgroup.subtree_control"), "-cpuset").unwrap();
    }
}

/// The same command, begun in the group that has this list of processes.
fn from_group(list: &Path, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo 0 > \"$0\"; exec \"$@\""]).arg(list);
    shell.arg(command.get_program()).args(command.get_args());
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn a_program_from_a_group_below_comes_back_to_it() {
    let Some(stage) = Stage::new() else { return };
    if stage.hierarchy.version == 1 {
        // There a group that is not exclusive cannot give a core away.
        return;
    }
    let session = stage.hierarchy.make("session");
    let inner = stage.hierarchy.make("session/inner");
    let home = inner.path.join("cgroup.procs");
    let before = stage.hierarchy.settings();
    for dies in ["program", "lane", "all"] {
        let lane = stage.place.lane(&hold(CORE), &SLEEP);
        let mut lane = stage.place.started(from_group(&home, &lane), SLEEP[0]);
        stage.others.verify_exclusive(CORE, lane.program);
        assert_eq!(stage.hierarchy.of(lane.program), format!("/evermap-lane-{CORE}"));
        match dies {
            "program" => kill(lane.program),
            "lane" => lane.kill(),
            _ => {
                lane.kill_all();
                stage.place.undo();
            }
        }
        wait_for("the lane to be undone", || stage.is_as_before());
        if dies == "lane" {
            wait_for("the program to be at home", || {
                stage.hierarchy.of(lane.program) == "/session/inner"
            });
            wait_for("the program to be ordinary", || is_ordinary(lane.program));
        }
        drop(lane);
        assert_eq!(stage.hierarchy.settings(), before, "{dies}");
        assert_eq!(stage.others.state(), stage.state, "{dies}");
    }
    drop((inner, session));
    stage.verify_as_before();
}

#[test]
#[ignore = "runs inside the machine that make test-vm boots"]
fn check_says_by_which_version_a_core_would_be_held() {
    let Some(_place) = Place::new() else { return };
    let hierarchy = Hierarchy::find();
    let statements = check(&Machine::look().unwrap(), &Subject::default());
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
