//! `evermap lane run`, `status`, `undo`: whoever dies, nothing is left; what a program starts is ordinary; what cannot be had is said.
//!
//! What a program in a lane does is an *act*: an ignored test of this file that a lane starts as its program. All state is in a directory of the
//! test's own; cpusets are the machine's, so tests that hold a core run alone, and what they leave is taken away whatever happens.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::Ran;
use rustix::process::{Pid, Signal};
use serde_json::Value;

const CPUSETS: &str = "/sys/fs/cgroup/cpuset";
/// What the promise says.
const UNDONE_MAX: Duration = Duration::from_secs(1);
/// For what is no promise: this machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// A state directory, and the right to the machine's cores.
struct Place {
    directory: tempfile::TempDir,
    _turn: File,
    cores: BTreeSet<PathBuf>,
}

impl Place {
    /// For lanes that lend.
    fn new() -> Self {
        Self::with(|turn| turn.lock_shared().unwrap())
    }

    /// For lanes that hold a core: nobody else's lane runs meanwhile. None where there are no cpusets of version 1 to write to.
    fn alone() -> Option<Self> {
        let is_able = rustix::process::geteuid().is_root()
            && fs::read_to_string(format!("{CPUSETS}/cpuset.cpu_exclusive")).is_ok()
            && cores().len() > 1;
        if !is_able {
            eprintln!(
                "skipped: holding a core by cpusets of version 1 needs them, root and two cores"
            );
            return None;
        }
        let place = Self::with(|turn| turn.lock().unwrap());
        assert!(groups().is_empty(), "somebody holds a core here: {:?}", groups());
        Some(place)
    }

    fn with(lock: impl FnOnce(&File)) -> Self {
        let path = "/tmp/evermap-lane-tests.lock";
        let turn = File::options().create(true).truncate(false).write(true).open(path).unwrap();
        lock(&turn);
        Self { directory: tempfile::tempdir().unwrap(), _turn: turn, cores: groups() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn evermap(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evermap"));
        command.arg("lane").args(arguments).arg("--state").arg(self.path("state"));
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.evermap(arguments).output().unwrap())
    }

    /// A run to its end, with its report.
    fn ended(&self, policy: &str, command: &[&str]) -> (Ran, Value) {
        let ran = Ran::of(self.lane(policy, command).output().unwrap());
        let report = fs::read_to_string(self.path("report.json")).unwrap_or_default();
        let report = serde_json::from_str(&report).unwrap_or(Value::Null);
        (ran, report)
    }

    fn lane(&self, policy: &str, command: &[&str]) -> Command {
        fs::write(self.path("policy.toml"), policy).unwrap();
        let mut lane = self.evermap(&["run"]);
        lane.arg("--policy").arg(self.path("policy.toml"));
        lane.arg("--report").arg(self.path("report.json"));
        lane.arg("--").args(command).stdout(Stdio::piped()).stderr(Stdio::piped());
        lane
    }

    /// A lane whose program runs, and has become what it is.
    fn start(&self, policy: &str, command: &[&str]) -> Lane<'_> {
        let child = self.lane(policy, command).spawn().unwrap();
        let mut lane = Lane { _place: self, child, program: 0, guardian: 0 };
        let name = Path::new(command[0]).file_name().unwrap().to_str().unwrap();
        let of_comm = &name[..name.len().min(15)];
        wait_for("the program to run", PATIENCE, || {
            let Some(journal) = self.journals().first().and_then(|path| json(path)) else {
                return false;
            };
            let pid = |who: &str| journal[who]["pid"].as_u64().unwrap_or(0) as u32;
            (lane.program, lane.guardian) = (pid("program"), pid("guardian"));
            lane.program != 0 && text(lane.program, "comm").trim() == of_comm
        });
        lane
    }

    fn journals(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("state/lanes")).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "json"))
            .collect()
    }

    /// Whether journals, claims and groups are gone.
    fn is_clean(&self) -> bool {
        self.journals().is_empty() && self.claimed().is_empty() && groups() == self.cores
    }

    fn claimed(&self) -> Vec<Value> {
        let status = self.run(&["status", "--json"]);
        let status: Value = serde_json::from_str(&status.out).unwrap();
        status["claimed"].as_array().unwrap().clone()
    }

    /// Within a second after what has just happened.
    fn is_undone_soon(&self, what: &str) {
        wait_for(what, UNDONE_MAX, || self.is_clean());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.evermap(&["undo"]).output());
        for group in groups().difference(&self.cores) {
            eprintln!("left behind: {}", group.display());
            for task in fs::read_to_string(group.join("tasks")).unwrap_or_default().lines() {
                drop(fs::write(format!("{CPUSETS}/tasks"), task));
            }
            drop(fs::remove_dir(group));
        }
    }
}

/// A lane that runs. It is killed with all of its own when the test is over, which is before its place is gone.
struct Lane<'a> {
    _place: &'a Place,
    child: Child,
    program: u32,
    guardian: u32,
}

impl Lane<'_> {
    fn ends(mut self) -> Ran {
        wait_for("the lane to end", PATIENCE, || self.child.try_wait().unwrap().is_some());
        let mut ran = Ran { code: 0, out: String::new(), err: String::new() };
        let status = self.child.wait().unwrap();
        ran.code = status.code().unwrap_or(-1);
        let out = self.child.stdout.take().unwrap();
        let err = self.child.stderr.take().unwrap();
        ran.out = std::io::read_to_string(out).unwrap();
        ran.err = std::io::read_to_string(err).unwrap();
        ran
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        for pid in [self.program, self.guardian] {
            kill(pid);
        }
    }
}

/// Only processes of this test, whose numbers its own journal told.
fn kill(pid: u32) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

fn wait_for(what: &str, max: Duration, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < max, "waited {:?} for {what}", began.elapsed());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn json(path: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

fn text(pid: u32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
}

/// The kernel's number of a thread's policy: 0 is ordinary, 1 FIFO.
fn policy_of(pid: u32) -> Option<u32> {
    let stat = text(pid, "stat");
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(38)?.parse().ok()
}

fn is_alive(pid: u32) -> bool {
    let stat = text(pid, "stat");
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with(['Z', 'X']))
}

fn affinity(pid: u32) -> String {
    let status = text(pid, "status");
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap_or_default().trim().to_owned()
}

fn cores() -> Vec<u32> {
    let all = affinity(std::process::id());
    let mut cores = Vec::new();
    for part in all.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        cores.extend(low.parse::<u32>().unwrap()..=high.parse().unwrap());
    }
    cores
}

fn groups() -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(CPUSETS).into_iter().flatten().flatten();
    let named =
        |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("evermap-");
    entries.map(|entry| entry.path()).filter(named).collect()
}

/// Whether this user may be real-time here.
fn has_fifo() -> bool {
    let tried = Command::new("chrt").args(["-f", "1", "true"]).output();
    let has = tried.is_ok_and(|tried| tried.status.success());
    if !has {
        eprintln!("skipped: no right to FIFO here, or no chrt");
    }
    has
}

/// The command that runs an act of this file.
fn act(name: &str) -> Vec<String> {
    let this = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    [&this, name, "--exact", "--ignored", "--nocapture"].map(String::from).to_vec()
}

fn as_strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

const LEND: &str = "[app]\nfps = 24\n";
const HOLD: &str = "[app]\nfps = 24\nshare = \"hold\"\n";
const SLEEP: [&str; 2] = ["sleep", "1000"];

/// Each way, where it can be had.
fn each_way(test: impl Fn(&Place, &str)) {
    test(&Place::new(), LEND);
    if let Some(place) = Place::alone() {
        test(&place, HOLD);
    }
}

/// Whether a program that a lane has left is as all others.
fn is_ordinary(pid: u32) -> bool {
    policy_of(pid) == Some(0) && affinity(pid) == affinity(std::process::id())
}

fn program_killed(place: &Place, policy: &str) {
    let lane = place.start(policy, &SLEEP);
    kill(lane.program);
    place.is_undone_soon("the program's lane to be undone");
    assert_eq!(lane.ends().code, 137);
}

#[test]
fn a_program_that_is_killed_leaves_nothing_within_a_second() {
    each_way(program_killed);
}

fn lane_killed(place: &Place, policy: &str) {
    let mut lane = place.start(policy, &SLEEP);
    lane.child.kill().unwrap();
    place.is_undone_soon("the guardian to undo");
    assert!(is_alive(lane.program), "the program is not the lane's to end");
    wait_for("the program to be ordinary", UNDONE_MAX, || is_ordinary(lane.program));
    wait_for("the guardian to end", PATIENCE, || !is_alive(lane.guardian));
}

#[test]
fn a_lane_that_is_killed_is_undone_within_a_second_and_its_program_runs_on() {
    each_way(lane_killed);
}

fn guardian_killed(place: &Place, policy: &str) {
    let lane = place.start(policy, &SLEEP);
    kill(lane.guardian);
    place.is_undone_soon("the lane to undo");
    assert!(is_alive(lane.program) && is_ordinary(lane.program));
    kill(lane.program);
    let ran = lane.ends();
    assert_eq!(ran.code, 137, "{ran:?}");
    assert!(ran.err.contains("the guardian was killed"), "{ran:?}");
}

#[test]
fn a_guardian_that_is_killed_is_noticed_and_the_lane_undoes_within_a_second() {
    each_way(guardian_killed);
}

fn all_killed(place: &Place, policy: &str) {
    let mut lane = place.start(policy, &SLEEP);
    // The guardian first: it would undo.
    kill(lane.guardian);
    lane.child.kill().unwrap();
    kill(lane.program);
    lane.child.wait().unwrap();
    let undone = place.run(&["undo"]);
    assert_eq!(undone.code, 0, "{undone:?}");
    assert!(place.is_clean(), "{:?} {:?}", place.journals(), groups());
    let again = place.run(&["undo"]);
    assert_eq!((again.code, again.out.as_str()), (0, "nothing was left behind\n"));
}

#[test]
fn what_is_left_when_all_are_killed_is_undone_by_undo_and_undo_is_idempotent() {
    each_way(all_killed);
}

#[test]
fn what_is_left_when_all_are_killed_is_undone_by_the_next_lane() {
    each_way(|place, policy| {
        let mut lane = place.start(policy, &SLEEP);
        let program = lane.program;
        // Stopped, it cannot notice that its guardian is gone.
        let pid = Pid::from_raw(lane.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        kill(lane.guardian);
        lane.child.kill().unwrap();
        lane.child.wait().unwrap();
        assert_eq!(place.journals().len(), 1);
        let status = place.run(&["status"]);
        assert!(
            status.out.contains("left behind") && status.out.contains("lane undo"),
            "{status:?}"
        );
        let (ran, report) = place.ended(policy, &["true"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(report["events"].to_string().contains("had been left behind"), "{report}");
        assert!(is_ordinary(program), "{:?} {}", policy_of(program), affinity(program));
        assert!(place.is_clean());
    });
}

#[test]
fn a_lane_that_is_killed_at_any_moment_of_its_start_leaves_nothing() {
    each_way(|place, policy| {
        let mut was_caught = false;
        for delay_ms in 0..60 {
            let mut lane =
                place.lane(policy, &["sleep", "30"]).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(2 * delay_ms));
            let journal = place.journals().first().and_then(|path| json(path)).unwrap_or_default();
            was_caught |= journal["program"].is_null() && !journal["id"].is_null();
            lane.kill().unwrap();
            lane.wait().unwrap();
            let ran = place.run(&["undo"]);
            assert_eq!(ran.code, 0, "after {delay_ms} ms: {ran:?}");
            // Without a journal, an undo has nothing to wait for: a guardian may be giving the core back.
            wait_for("the core to be given back", UNDONE_MAX, || place.is_clean());
            let program = journal["program"]["pid"].as_u64().unwrap_or(0) as u32;
            if is_alive(program) {
                wait_for("the program to be ordinary", UNDONE_MAX, || is_ordinary(program));
                kill(program);
            }
        }
        assert!(was_caught, "no kill came before the program");
    });
}

#[test]
fn a_lane_that_is_stopped_is_undone_by_its_guardian_when_the_program_ends() {
    let place = Place::new();
    let lane = place.start(LEND, &SLEEP);
    let pid = Pid::from_raw(lane.child.id() as i32).unwrap();
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    kill(lane.program);
    place.is_undone_soon("the guardian to undo");
    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(lane.ends().code, 137);
}

#[test]
fn a_program_has_its_core_and_its_policy_and_what_it_starts_has_neither() {
    let has_fifo = has_fifo();
    each_way(|place, policy| {
        let child = "sleep 0.3; cat /proc/self/stat; grep Cpus_allowed_list /proc/self/status";
        // The first is a process that the shell starts; the shell itself is the program.
        let script = format!(
            "cat /proc/$$/stat; grep Cpus_allowed_list /proc/$$/status; sh -c '{child}'; true"
        );
        let (ran, report) = place.ended(policy, &["sh", "-c", &script]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let lines: Vec<&str> = ran.out.lines().collect();
        let [own, own_cores, of_child, cores_of_child] = lines[..] else { panic!("{ran:?}") };
        let class =
            |stat: &str| stat.rsplit_once(") ").unwrap().1.split(' ').nth(38).unwrap().to_owned();
        let core = report["core"].to_string();
        assert_eq!(class(own), if has_fifo { "1" } else { "0" });
        assert_eq!(own_cores.split_ascii_whitespace().last(), Some(core.as_str()));
        assert_eq!(class(of_child), "0", "its policy is not inherited");
        let cores_of_child = cores_of_child.split_ascii_whitespace().last().unwrap();
        assert_ne!(cores_of_child, core, "nor is its core");
        assert!(place.is_clean());
    });
}

#[test]
fn a_second_lane_on_the_same_core_is_refused_and_names_the_first() {
    let place = Place::new();
    let core = cores()[0];
    let policy = format!("[app]\ncore = {core}\n");
    let lane = place.start(&policy, &SLEEP);
    let (ran, _) = place.ended(&policy, &["true"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(
        ran.err
            .contains(&format!("core {core} has a lane already, of process {}", lane.child.id())),
        "{ran:?}"
    );
    assert!(is_alive(lane.program) && place.journals().len() == 1);
    let status: Value = serde_json::from_str(&place.run(&["status", "--json"]).out).unwrap();
    assert_eq!(status["lanes"][0]["command"], SLEEP.join(" "), "{status}");
    // One that chooses gets another one, where there is one.
    if cores().len() > 1 {
        let (ran, report) = place.ended("", &["true"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_ne!(report["core"], core);
    }
}

#[test]
fn as_many_lanes_at_once_as_cores_get_one_each_and_the_rest_are_refused() {
    let place = Place::new();
    let count = cores().len();
    let mut lanes: Vec<Child> = (0..count + 2)
        .map(|_| place.lane("", &["sleep", "2"]).stdout(Stdio::null()).spawn().unwrap())
        .collect();
    let codes: Vec<i32> =
        lanes.iter_mut().map(|lane| lane.wait().unwrap().code().unwrap()).collect();
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), count, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 125).count(), 2, "{codes:?}");
    assert!(place.is_clean());
}

#[test]
fn later_threads_are_in_the_lane_and_those_of_main_are_not() {
    if !has_fifo() {
        return;
    }
    let place = Place::new();
    for (policy, expected) in [("threads = \"all\"", "1 1 1 1"), ("threads = \"main\"", "1 0 0 0")]
    {
        let command = act("act_threads");
        let command: Vec<&str> =
            ["env", "EVERMAP_ACT=1"].into_iter().chain(as_strs(&command)).collect();
        let (ran, report) = place.ended(&format!("[app]\n{policy}\n"), &command);
        assert!(ran.out.contains(&format!("policies {expected}")), "{policy}: {ran:?}");
        assert!(report["threads"].as_u64().unwrap() >= 4, "{report}");
    }
}

/// Tells the policies of its first thread and three others, when they have had time to be given one.
#[test]
#[ignore = "an act"]
fn act_threads() {
    let pid = std::process::id();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| std::thread::sleep(Duration::from_secs(3)));
        }
        std::thread::sleep(Duration::from_secs(2));
        let mut threads: Vec<u32> = fs::read_dir(format!("/proc/{pid}/task"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
            .collect();
        threads.sort_unstable();
        let classes: Vec<String> =
            threads.iter().map(|thread| policy_of(*thread).unwrap().to_string()).collect();
        println!("policies {}", classes.join(" "));
    });
}

#[test]
fn a_program_that_never_sleeps_loses_its_priority_and_runs_on() {
    if !has_fifo() {
        return;
    }
    let place = Place::new();
    for policy in ["[app]\nfps = 100\n[guard]\nmax_overrun = 3\n", "[app]\npriority = 40\n"] {
        let command = ["sh", "-c", "while :; do :; done"];
        let lane = place.start(policy, &command);
        wait_for("it to be demoted", PATIENCE, || policy_of(lane.program) == Some(0));
        assert!(is_alive(lane.program));
        kill(lane.program);
        let report = {
            let (program, path) = (lane.program, place.path("report.json"));
            assert_eq!(lane.ends().code, 137);
            let report = json(&path).unwrap();
            assert_eq!(report["demotions"][0]["thread"], program);
            report
        };
        assert!(report["demotions"][0]["ran_ms"].as_f64().unwrap() >= 30.0, "{report}");
        assert!(place.is_clean());
    }
}

#[test]
fn a_program_that_sleeps_keeps_its_priority() {
    if !has_fifo() {
        return;
    }
    let place = Place::new();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done; cat /proc/$$/stat";
    let (ran, report) = place.ended(LEND, &["sh", "-c", script]);
    assert_eq!(ran.out.rsplit_once(") ").unwrap().1.split(' ').nth(38), Some("1"), "{ran:?}");
    assert_eq!(report["demotions"].as_array().unwrap().len(), 0, "{report}");
}

#[test]
fn a_program_that_leaves_a_daemon_ends_the_lane_and_the_daemon_is_ordinary() {
    each_way(|place, policy| {
        let file = place.path("daemon");
        // Twice removed, in a session of its own, with nothing of the lane in its environment.
        let daemon = format!("sleep 1000 & echo $! > {}", file.display());
        let script = format!("setsid env -i sh -c '{daemon}' < /dev/null > /dev/null 2>&1 & wait");
        let (ran, report) = place.ended(policy, &["sh", "-c", &script]);
        let pid: u32 = fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        let (is_there, is_ordinary) = (is_alive(pid), is_ordinary(pid));
        let is = format!("{:?} {}", policy_of(pid), affinity(pid));
        kill(pid);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(is_there && is_ordinary, "{is}");
        assert!(report["events"].to_string().contains("run on, as ordinary ones"), "{report}");
        assert!(place.is_clean());
    });
}

#[test]
fn a_program_that_forks_and_forks_is_contained() {
    each_way(|place, policy| {
        // 200 processes, each started by the one before, all at once there.
        let script = "f() { if [ $1 -gt 0 ]; then (f $(($1 - 1))) & fi; sleep 2; }; f 200";
        let lane = place.start(policy, &["sh", "-c", script]);
        let program = lane.program;
        let ran = lane.ends();
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(!is_alive(program) && place.is_clean());
        let report = json(&place.path("report.json")).unwrap();
        assert!(report["children"].as_u64().unwrap() > 0, "{report}");
    });
}

#[test]
fn a_killed_lane_of_a_program_that_forks_is_undone_all_the_same() {
    each_way(|place, policy| {
        let file = place.path("pids");
        let script = format!(
            "i=0; while [ $i -lt 100 ]; do sleep 30 & echo $! >> {}; i=$((i + 1)); done; wait",
            file.display()
        );
        let mut lane = place.start(policy, &["sh", "-c", &script]);
        wait_for("some processes", PATIENCE, || {
            fs::read_to_string(&file).unwrap_or_default().lines().count() > 20
        });
        lane.child.kill().unwrap();
        place.is_undone_soon("the guardian to undo");
        kill(lane.program);
        let started = fs::read_to_string(&file).unwrap();
        let started: Vec<u32> = started.lines().filter_map(|pid| pid.parse().ok()).collect();
        let wrong: Vec<_> =
            started.iter().filter(|pid| is_alive(**pid) && !is_ordinary(**pid)).collect();
        // The program itself ran on, and what it started since is ordinary by birth.
        let wrong: Vec<_> = wrong.iter().map(|pid| (policy_of(**pid), affinity(**pid))).collect();
        started.iter().for_each(|pid| kill(*pid));
        assert!(wrong.is_empty(), "{wrong:?}");
    });
}

#[test]
fn a_hold_whose_names_are_taken_is_refused_and_they_are_not_touched() {
    let Some(place) = Place::alone() else { return };
    let core = cores()[0];
    let foreign = PathBuf::from(format!("{CPUSETS}/evermap-lane-{core}"));
    fs::create_dir(&foreign).unwrap();
    let policy = format!("[app]\nshare = \"hold\"\ncore = {core}\n");
    let (ran, _) = place.ended(&policy, &["true"]);
    let is_there = foreign.is_dir();
    let status = place.run(&["status"]);
    fs::remove_dir(&foreign).unwrap();
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("already") && ran.err.contains("lane undo"), "{ran:?}");
    assert!(is_there && status.out.contains("a group of no lane known here"), "{status:?}");
    assert!(place.is_clean());
}

#[test]
fn a_core_that_anothers_cpuset_has_is_refused_and_that_is_not_touched() {
    let Some(place) = Place::alone() else { return };
    let core = cores()[0];
    let foreign = PathBuf::from(format!("{CPUSETS}/lane-test-of-others"));
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("cpuset.cpus"), core.to_string()).unwrap();
    let policy = format!("[app]\nshare = \"hold\"\ncore = {core}\n");
    let (ran, _) = place.ended(&policy, &["true"]);
    let cpus = fs::read_to_string(foreign.join("cpuset.cpus")).unwrap();
    fs::remove_dir(&foreign).unwrap();
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("lane-test-of-others"), "{ran:?}");
    assert_eq!(cpus.trim(), core.to_string());
    assert!(place.is_clean());
}

#[test]
fn the_end_of_the_program_is_passed_on() {
    let place = Place::new();
    for (script, code) in
        [("exit 0", 0), ("exit 42", 42), ("kill -TERM $$", 143), ("kill -SEGV $$", 139)]
    {
        let (ran, _) = place.ended(LEND, &["sh", "-c", script]);
        assert_eq!(ran.code, code, "{script}: {ran:?}");
    }
    for (command, code, says) in
        [("no-such-command", 127, "no command"), ("/etc/passwd", 126, "cannot start /etc/passwd")]
    {
        let (ran, _) = place.ended(LEND, &[command]);
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(ran.err.contains(says), "{ran:?}");
    }
    assert!(place.is_clean());
}

#[test]
fn a_report_that_cannot_be_written_is_said_before_the_program_starts() {
    let place = Place::new();
    let ran = place.path("ran");
    let mut lane = place.evermap(&["run"]);
    lane.arg("--report").arg(place.path("nowhere/report.json")).args(["--", "touch"]).arg(&ran);
    let said = Ran::of(lane.output().unwrap());
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.err.contains("there is no folder"), "{said:?}");
    assert!(!ran.exists(), "it ran");
}

#[test]
fn signals_to_the_lane_are_the_programs() {
    let place = Place::new();
    let ready = place.path("ready");
    let script =
        format!("trap 'exit 7' TERM; : > {}; while :; do sleep 0.05; done", ready.display());
    let lane = place.start(LEND, &["sh", "-c", &script]);
    wait_for("the trap", PATIENCE, || ready.exists());
    let pid = Pid::from_raw(lane.child.id() as i32).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(lane.ends().code, 7);
    assert!(place.is_clean());
}

#[test]
fn a_lane_whose_time_is_over_leaves_an_ordinary_program() {
    each_way(|place, policy| {
        let lane = place.start(&format!("{policy}[guard]\nmax_time_s = 1\n"), &SLEEP);
        wait_for("the time to be over", PATIENCE, || place.is_clean());
        assert!(is_alive(lane.program) && is_ordinary(lane.program));
        kill(lane.program);
        let ran = lane.ends();
        assert!(ran.code == 137 && ran.err.contains("time was over"), "{ran:?}");
    });
}

#[test]
fn without_a_core_of_its_own_and_without_a_policy_the_rest_works() {
    let place = Place::new();
    let policy = "[app]\nshare = \"off\"\nscheduler = \"other\"\n[io]\nlock_memory = false\n";
    let (ran, report) = place.ended(policy, &["sh", "-c", "cat /proc/$$/stat; true"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.out.rsplit_once(") ").unwrap().1.split(' ').nth(38), Some("0"));
    assert!(
        report["core"].is_null() && report["not_applied"].as_array().unwrap().is_empty(),
        "{report}"
    );
}

#[test]
fn deadlines_are_had_without_a_core_or_replaced_by_name() {
    if !has_fifo() {
        return;
    }
    let place = Place::new();
    let core = cores()[0];
    let pinned = format!("[app]\nfps = 60\nscheduler = \"deadline\"\ncore = {core}\n");
    let (ran, report) = place.ended(&pinned, &["sh", "-c", "cat /proc/$$/stat; true"]);
    assert_eq!(ran.out.rsplit_once(") ").unwrap().1.split(' ').nth(38), Some("1"), "{ran:?}");
    assert!(
        report["not_applied"][0]["what"].as_str().unwrap().contains("SCHED_DEADLINE"),
        "{report}"
    );
    let free = "[app]\nfps = 60\nscheduler = \"deadline\"\nbudget_us = 1000\n";
    let (ran, report) = place.ended(free, &["sh", "-c", "cat /proc/$$/stat; true"]);
    let class = ran.out.rsplit_once(") ").unwrap().1.split(' ').nth(38).unwrap().to_owned();
    match class.as_str() {
        "6" => assert!(report["core"].is_null(), "{report}"),
        // Refused, as where this test may not use all cores: FIFO, and it is said.
        _ => assert!(
            class == "1" && report["not_applied"].to_string().contains("SCHED_DEADLINE"),
            "{report}"
        ),
    }
}

#[test]
fn with_one_core_lend_works() {
    let place = Place::new();
    let core = cores()[0].to_string();
    fs::write(place.path("policy.toml"), LEND).unwrap();
    let mut command = Command::new("taskset");
    command.args(["-c", &core, env!("CARGO_BIN_EXE_evermap"), "lane", "run", "--state"]);
    command.arg(place.path("state")).arg("--policy").arg(place.path("policy.toml"));
    let ran = Ran::of(command.args(["--", "sh", "-c", "sleep 0.1; exit 5"]).output().unwrap());
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.err.contains("is the only one"), "{ran:?}");
}

#[test]
fn a_policy_is_for_the_programs_that_it_names() {
    let place = Place::new();
    let (ran, _) = place.ended("[app]\nmatch = \"*/sleep\"\n", &["sleep", "0"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let (ran, _) = place.ended("[app]\nmatch = \"*/mpv\"\n", &["sleep", "0"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("*/mpv") && place.is_clean(), "{ran:?}");
    let (ran, _) = place.ended("[app]\nframes = 3\n", &["true"]);
    assert!(ran.code != 0 && ran.err.contains("unknown field"), "{ran:?}");
}

/// The command where another user can run it.
fn for_others(place: &Place) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let copy = place.path("evermap");
    fs::copy(env!("CARGO_BIN_EXE_evermap"), &copy).unwrap();
    fs::set_permissions(place.directory.path(), PermissionsExt::from_mode(0o777)).unwrap();
    fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
    copy
}

#[test]
fn without_rights_a_lane_does_what_it_can_and_names_what_it_could_not() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can be somebody else");
        return;
    }
    let place = Place::new();
    let copy = for_others(&place);
    fs::write(place.path("policy.toml"), HOLD).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&copy);
        command.uid(65534).gid(65534).env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
        command.args(arguments).arg("--state").arg(place.path("state-of-nobody"));
        command
    };
    let mut lane = run(&["lane", "run"]);
    lane.arg("--policy").arg(place.path("policy.toml"));
    lane.args(["--", "sh", "-c", "grep Cpus_allowed_list /proc/$$/status; sleep 0.1; exit 6"]);
    let ran = Ran::of(lane.output().unwrap());
    assert_eq!(ran.code, 6, "{ran:?}");
    let own = ran.out.split_ascii_whitespace().last().unwrap();
    assert!(own.parse::<u32>().is_ok(), "it has one core: {ran:?}");
    assert!(ran.err.contains("may not make") || ran.err.contains("cpuset"), "{ran:?}");
    assert!(ran.err.contains("RLIMIT_RTPRIO") || ran.err.contains("rt_runtime_us"), "{ran:?}");
    // Killed, it is undone by a guardian without rights, too.
    let mut lane = run(&["lane", "run"]);
    let mut child = lane.args(["--", "sleep", "1000"]).stderr(Stdio::null()).spawn().unwrap();
    let mut program = 0;
    wait_for("the program", PATIENCE, || {
        let entries =
            fs::read_dir(place.path("state-of-nobody/lanes")).into_iter().flatten().flatten();
        let journal = entries.filter_map(|entry| json(&entry.path())).next().unwrap_or_default();
        program = journal["program"]["pid"].as_u64().unwrap_or(0) as u32;
        program != 0 && text(program, "comm").trim() == "sleep"
    });
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the guardian", UNDONE_MAX, || is_ordinary(program));
    kill(program);
    let undone = Ran::of(run(&["lane", "undo"]).output().unwrap());
    assert_eq!(undone.code, 0, "{undone:?}");
}

#[test]
fn a_damaged_journal_is_named_and_the_others_are_undone() {
    let place = Place::new();
    let mut lane = place.start(LEND, &SLEEP);
    let pid = Pid::from_raw(lane.child.id() as i32).unwrap();
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    kill(lane.guardian);
    lane.child.kill().unwrap();
    lane.child.wait().unwrap();
    let damaged = place.path("state/lanes/0-0-0.json");
    fs::write(&damaged, "{\"format\": 1, \"id\"").unwrap();
    let undone = place.run(&["undo"]);
    assert_eq!(undone.code, 5, "{undone:?}");
    assert!(undone.err.contains("0-0-0.json") && undone.out.contains("undone"), "{undone:?}");
    assert_eq!(place.journals(), std::slice::from_ref(&damaged));
    assert!(is_ordinary(lane.program));
    // A lane is made all the same, and says so.
    let (ran, _) = place.ended(LEND, &["true"]);
    assert!(ran.code == 0 && ran.err.contains("0-0-0.json"), "{ran:?}");
    fs::remove_file(damaged).unwrap();
}

#[test]
fn status_tells_of_a_lane_that_runs() {
    let place = Place::new();
    assert_eq!(place.run(&["status"]).out, "no lanes\n");
    let lane = place.start(LEND, &SLEEP);
    let told = place.run(&["status"]);
    assert!(told.out.contains("runs") && told.out.contains(&lane.program.to_string()), "{told:?}");
    let told: Value = serde_json::from_str(&place.run(&["status", "--json"]).out).unwrap();
    let one = &told["lanes"][0];
    assert_eq!(one["program_pid"], lane.program);
    assert_eq!(one["guardian_pid"], lane.guardian);
    assert_eq!((&one["is_running"], &told["claimed"][0]), (&Value::Bool(true), &one["core"]));
    let undone = place.run(&["undo"]);
    assert!(undone.out.contains("1 lanes run"), "{undone:?}");
    assert!(is_alive(lane.guardian) && place.journals().len() == 1);
}

#[test]
fn a_guardian_is_nobodys_to_start_by_hand() {
    let place = Place::new();
    let lane = place.start(LEND, &SLEEP);
    let id = place.journals()[0].file_stem().unwrap().to_str().unwrap().to_owned();
    let ran = place.run(&["guard", "--id", &id]);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(
        place.journals().len() == 1 && is_alive(lane.program),
        "the lane is not undone by that"
    );
    let ran = Ran::of(
        Command::new(env!("CARGO_BIN_EXE_evermap"))
            .args(["lane", "start", "--channel", "77", "--program", "/bin/true", "--", "true"])
            .output()
            .unwrap(),
    );
    assert!(ran.code != 0 && ran.err.contains("not started by a lane"), "{ran:?}");
}

#[test]
fn a_guardian_is_deaf_to_polite_signals() {
    let place = Place::new();
    let mut lane = place.start(LEND, &SLEEP);
    let pid = Pid::from_raw(lane.guardian as i32).unwrap();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        rustix::process::kill_process(pid, signal).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    assert!(is_alive(lane.guardian) && place.journals().len() == 1);
    lane.child.kill().unwrap();
    place.is_undone_soon("the guardian to undo");
}

#[test]
fn a_core_that_goes_offline_is_left_for_another_one_or_the_lane_ends() {
    if cores().len() < 2 {
        eprintln!("skipped: one core");
        return;
    }
    for (policy, said) in
        [("[app]\nfps = 24\n", "moved to core"), ("[app]\ncore = CORE\n", "the lane was over")]
    {
        let place = Place::new();
        let policy = policy.replace("CORE", &cores()[0].to_string());
        fs::write(place.path("policy.toml"), policy).unwrap();
        let mut command = act("act_core_offline");
        command.insert(0, place.directory.path().to_str().unwrap().to_owned());
        let mut act = Command::new(&command[1]);
        act.args(&command[2..]).env("EVERMAP_ACT_PLACE", &command[0]);
        let ran = Ran::of(act.output().unwrap());
        assert!(ran.out.contains(said), "{ran:?}");
        assert!(ran.out.contains("went offline") && place.is_clean(), "{ran:?}");
    }
}

/// A lane that is told that its core went offline: by a tree of files that says so.
#[test]
#[ignore = "an act"]
fn act_core_offline() {
    use evermap_lane::guard::StateDirectory;
    use evermap_lane::machine::Roots;
    use evermap_lane::run::{Options, Program, run};
    let place = PathBuf::from(std::env::var("EVERMAP_ACT_PLACE").unwrap());
    let policy = evermap_lane::Policy::read(&place.join("policy.toml")).unwrap();
    let sys = place.join("sys/devices/system/cpu");
    fs::create_dir_all(&sys).unwrap();
    let all = affinity(std::process::id());
    fs::write(sys.join("online"), &all).unwrap();
    fs::write(sys.join("possible"), &all).unwrap();
    let state = place.join("state");
    let state_of_lane = state.clone();
    let lane = std::thread::spawn(move || {
        let options = Options {
            state: Some(StateDirectory::at(&state_of_lane).unwrap()),
            helper: Some(env!("CARGO_BIN_EXE_evermap").into()),
            roots: Roots { proc: "/proc".into(), sys: place.join("sys") },
            ..Options::default()
        };
        let arguments = vec!["3".into()];
        let program = Program { path: "/bin/sleep".into(), name: "sleep".into(), arguments };
        run(&policy, &program, &options).unwrap()
    });
    let journal = || {
        let entries = fs::read_dir(state.join("lanes")).into_iter().flatten().flatten();
        entries.filter_map(|entry| json(&entry.path())).next().unwrap_or_default()
    };
    let program = || journal()["program"]["pid"].as_u64().unwrap_or(0) as u32;
    wait_for("the program", PATIENCE, || text(program(), "comm").trim() == "sleep");
    let (pid, core) = (program(), journal()["core"].as_u64().unwrap() as u32);
    let others: Vec<String> =
        cores().into_iter().filter(|other| *other != core).map(|other| other.to_string()).collect();
    fs::write(sys.join("online"), others.join(",")).unwrap();
    wait_for("the lane to leave the core", PATIENCE, || affinity(pid) != core.to_string());
    let ended = lane.join().unwrap();
    println!("{ended}");
}

/// A core that is really switched off, put on again whatever happens.
#[test]
#[ignore = "switches a core of the machine off"]
fn a_core_that_is_switched_off_is_left() {
    struct On(PathBuf);
    impl Drop for On {
        fn drop(&mut self) {
            drop(fs::write(&self.0, "1"));
        }
    }
    let Some(place) = Place::alone() else { return };
    let core = *cores().last().unwrap();
    let switch = PathBuf::from(format!("/sys/devices/system/cpu/cpu{core}/online"));
    let lane = place.start(&format!("[app]\ncore = {core}\n"), &["sleep", "5"]);
    let on = On(switch.clone());
    if let Err(error) = fs::write(&switch, "0") {
        eprintln!("skipped: core {core} cannot be switched off: {error}");
        return;
    }
    wait_for("the lane to notice", PATIENCE, || place.is_clean());
    assert_eq!(policy_of(lane.program), Some(0));
    drop(on);
    assert!(lane.ends().err.contains("went offline"));
}

/// The promise in numbers: `cargo test -p evermap-cli --test lane_run -- --ignored --nocapture trials`.
#[test]
#[ignore = "takes minutes"]
fn trials_of_killing_each_leave_nothing() {
    type Trial = fn(&Place, &str);
    let trials: [(&str, Trial); 4] = [
        ("program", program_killed),
        ("lane", lane_killed),
        ("guardian", guardian_killed),
        ("all", all_killed),
    ];
    for (share, policy) in [("lend", LEND), ("hold", HOLD)] {
        for (who, trial) in trials {
            let mut good = 0;
            for _ in 0..100 {
                let place = match share {
                    "hold" => Place::alone(),
                    _ => Some(Place::new()),
                };
                let Some(place) = place else { return };
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    trial(&place, policy)
                }));
                good += usize::from(result.is_ok());
            }
            println!("{share}, kill -9 of {who}: {good} of 100 left nothing");
            assert_eq!(good, 100, "{share}, {who}");
        }
    }
}

#[test]
fn the_program_sees_its_files_from_the_tier_and_nobody_else_does() {
    let place = Place::new();
    let (film, tier) = (place.path("film"), tempfile::tempdir_in("/dev/shm").unwrap());
    fs::write(&film, "the film").unwrap();
    let policy = format!(
        "[tier]\nfiles = [\"{}\", \"{}\"]\npath = \"{}\"\n",
        film.display(),
        place.path("none").display(),
        tier.path().display()
    );
    // The file's device tells whose it is.
    let (ran, report) = place.ended(&policy, &["stat", "-c", "%d", film.to_str().unwrap()]);
    if report["not_applied"].to_string().contains("mounts") {
        eprintln!("skipped: private mounts are not allowed here");
        return;
    }
    assert_eq!(ran.code, 0, "{ran:?}");
    let device = std::os::unix::fs::MetadataExt::dev(&fs::metadata(tier.path()).unwrap());
    assert_eq!(ran.out.trim(), device.to_string(), "{ran:?}");
    assert!(report["applied"].to_string().contains("1 files from the tier"), "{report}");
    assert!(ran.err.contains("none on the tier") && ran.err.contains("no file"), "{ran:?}");
    let script = format!("cat {0}; echo more >> {0}", film.display());
    let (ran, _) = place.ended(&policy, &["sh", "-c", &script]);
    assert_eq!(ran.out, "the film", "{ran:?}");
    assert!(ran.code != 0 && ran.err.contains("Read-only"), "{ran:?}");
    assert_eq!(fs::read_to_string(&film).unwrap(), "the film");
}

#[test]
fn a_file_that_should_have_moved_to_the_tier_is_said() {
    let place = Place::new();
    let (film, tier) = (place.path("film"), tempfile::tempdir_in("/dev/shm").unwrap());
    fs::write(&film, "the film").unwrap();
    let policy = format!(
        "[tier]\nfiles = [\"{}\"]\npath = \"{}\"\nmode = \"switch\"\n",
        film.display(),
        tier.path().display()
    );
    let (ran, _) = place.ended(&policy, &["cat", film.to_str().unwrap()]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "the film"), "{ran:?}");
    assert!(ran.err.contains("lane place apply"), "{ran:?}");
}

#[test]
fn a_tier_that_is_not_there_is_no_lane() {
    let place = Place::new();
    let policy = "[tier]\nfiles = [\"*\"]\npath = \"/nowhere\"\n";
    let (ran, _) = place.ended(policy, &["true"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("no lane") && ran.err.contains("/nowhere"), "{ran:?}");
}

#[test]
fn undo_looks_at_files_on_their_way_to_a_tier_too() {
    let place = Place::new();
    let journal = place.path("journal");
    let undo =
        |place: &Place| place.run(&["undo", "--json", "--journal", journal.to_str().unwrap()]);
    let told: Value = serde_json::from_str(&undo(&place).out).unwrap();
    assert_eq!(told["returned"], Value::Array(Vec::new()));
    fs::create_dir(&journal).unwrap();
    fs::set_permissions(&journal, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let damaged = journal.join("0123456789abcdef.json");
    fs::write(&damaged, "{\"version\": 1, \"pa").unwrap();
    let ran = undo(&place);
    assert!(ran.code != 0 && ran.out.contains("0123456789abcdef"), "{ran:?}");
    assert!(damaged.exists(), "what makes no sense is kept");
}
