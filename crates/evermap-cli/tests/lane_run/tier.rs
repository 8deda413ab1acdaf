//! Files of a program on the fast tier.

use std::fs;

use crate::place::Place;

#[test]
fn only_the_program_sees_its_files_on_the_tier() {
    let place = Place::new();
    let (film, tier) = (place.path("film"), tempfile::tempdir_in("/dev/shm").unwrap());
    fs::write(&film, "the film").unwrap();
    let policy = format!(
        "[tier]\nfiles = [\"{}\", \"{}\"]\npath = \"{}\"\n",
        film.display(),
        place.path("none").display(),
        tier.path().display()
    );
    // The device number tells the tier's copy from the original.
    let (ran, report) = place.ended(&policy, &["stat", "-c", "%d", film.to_str().unwrap()]);
    if report["not_applied"].to_string().contains("mounts") {
        eprintln!("skipped: private mounts are not allowed here");
        return;
    }
    assert_eq!(ran.code, 0, "{ran:?}");
    let device = std::os::unix::fs::MetadataExt::dev(&fs::metadata(tier.path()).unwrap());
    assert_eq!(ran.out.trim(), device.to_string(), "{ran:?}");
    let applied = serde_json::json!({ "part": "tier_files", "files": 1 });
    assert!(report["applied"].as_array().unwrap().contains(&applied), "{report}");
    assert!(ran.err.contains("none on the tier") && ran.err.contains("no file"), "{ran:?}");
    let script = format!("cat {0}; echo more >> {0}", film.display());
    let (ran, _) = place.ended(&policy, &["sh", "-c", &script]);
    assert_eq!(ran.out, "the film", "{ran:?}");
    assert!(ran.code != 0 && ran.err.contains("Read-only"), "{ran:?}");
    assert_eq!(fs::read_to_string(&film).unwrap(), "the film");
}

#[test]
fn a_file_that_was_not_moved_to_the_tier_is_reported() {
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
fn a_missing_tier_refuses_the_lane() {
    let place = Place::new();
    let policy = "[tier]\nfiles = [\"*\"]\npath = \"/nowhere\"\n";
    let (ran, _) = place.ended(policy, &["true"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("no lane") && ran.err.contains("/nowhere"), "{ran:?}");
}
