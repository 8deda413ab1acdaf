//! A core belongs to one lane at a time.

use std::process::{Child, Stdio};

use crate::place::{Place, SLEEP};
use crate::system::{TIMEOUT, cores, is_alive, wait_for};

#[test]
fn a_second_lane_on_the_same_core_is_refused_and_names_the_first() {
    let place = Place::new();
    let core = cores()[0];
    let policy = format!("[app]\ncore = {core}\n");
    let lane = place.start(&policy, &SLEEP);
    let (ran, _) = place.ended(&policy, &["true"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(
        ran.err.contains(&format!(
            "core {core} already has a lane, claimed by process {}",
            lane.child.id()
        )),
        "{ran:?}"
    );
    assert!(is_alive(lane.program) && place.journals().len() == 1);
    let status = place.status();
    assert_eq!(status["lanes"][0]["command"], SLEEP.join(" "), "{status}");
    // A lane that may choose gets another core, if there is one.
    if cores().len() > 1 {
        let (ran, report) = place.ended("", &["true"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_ne!(report["core"], core);
    }
}

#[test]
fn lanes_get_one_core_each_and_lanes_beyond_the_number_of_cores_are_refused() {
    let place = Place::new();
    let count = cores().len();
    let over = place.path("over");
    // No lane ends before all have chosen a core.
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done", over.display());
    let start = || place.lane("", &["sh", "-c", &script]).stdout(Stdio::null()).spawn().unwrap();
    let mut lanes: Vec<Child> = (0..count + 2).map(|_| start()).collect();
    let refused = |lane: &mut Child| lane.try_wait().unwrap().is_some();
    wait_for("two refused lanes", TIMEOUT, || {
        lanes.iter_mut().filter_map(|lane| refused(lane).then_some(())).count() >= 2
    });
    std::fs::write(over, "").unwrap();
    let codes: Vec<i32> =
        lanes.iter_mut().map(|lane| lane.wait().unwrap().code().unwrap()).collect();
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), count, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 125).count(), 2, "{codes:?}");
    assert!(place.is_clean());
}
