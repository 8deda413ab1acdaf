//! Programs in C that map and read a file in every way that could go wrong with the shim in front of the C library: each checks every byte by itself, and runs
//! without the shim as well, so that it is known to be right.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// No whole page at the end, and long enough that loads are under way when programs go on.
const FILE_BYTES: usize = (12 << 20) + 123;
/// What the policy says, and every kind of method that it could.
const METHODS: [&str; 6] =
    ["", "takeover", "takeover-on-demand", "read-huge", "read-uncached", "mmap-huge"];

fn shim() -> PathBuf {
    // Beside the folder of the tests.
    let test = std::env::current_exe().unwrap();
    let built = test.parent().unwrap().parent().unwrap().join("libevermap_load_shim.so");
    let other = test.parent().unwrap().join("libevermap_load_shim.so");
    [built, other].into_iter().find(|path| path.is_file()).expect("cargo builds the library")
}

struct Place {
    directory: tempfile::TempDir,
    program: PathBuf,
}

impl Place {
    /// With a program and its file; `None` if nothing can be compiled here.
    fn new(program: &str) -> Option<Place> {
        // On a disk, if there is one: most methods are for those.
        let directory = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(program);
        let binary = directory.path().join(program);
        let compiled = Command::new("cc")
            .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-pthread", "-o"])
            .arg(&binary)
            .arg(source.with_extension("c"))
            .output();
        let Ok(compiled) = compiled else {
            println!("skipped: there is no C compiler here");
            return None;
        };
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let place = Place { program: binary, directory };
        std::fs::write(place.file(), expected()).unwrap();
        Some(place)
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("data.bin")
    }

    fn report(&self) -> PathBuf {
        self.directory.path().join("report")
    }

    /// Has the next run find the file on the disk.
    fn cool(&self) {
        let file = std::fs::File::open(self.file()).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    fn command(&self, deed: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(deed).arg(self.file()).env_remove("LD_PRELOAD");
        command
    }

    fn with_shim(&self, deed: &str, rules: &str) -> Command {
        let _ = std::fs::remove_file(self.report());
        let mut command = self.command(deed);
        command.env("LD_PRELOAD", shim()).env("EVERMAP_LOAD_RULES", rules);
        command.env("EVERMAP_LOAD_REPORT", self.report());
        command
    }

    fn told(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.report()).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn expected() -> Vec<u8> {
    let words = (0..FILE_BYTES.div_ceil(8) as u64).map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(FILE_BYTES);
    bytes
}

fn well(output: &Output, what: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}: {said}", output.status);
    assert_eq!(said, "", "{what}");
}

fn rules(method: &str) -> String {
    match method {
        "" => "[[file]]\npattern = \"*.bin\"\n".into(),
        method => format!("[[file]]\npattern = \"*.bin\"\nmethod = \"{method}\"\n"),
    }
}

/// A deed does as well with the shim as without, whatever loads.
fn maps(deed: &str) {
    let Some(place) = Place::new("maps") else { return };
    well(&place.command(deed).output().unwrap(), deed);
    for method in METHODS {
        place.cool();
        well(
            &place.with_shim(deed, &rules(method)).output().unwrap(),
            &format!("{deed}, {method}"),
        );
        for line in place.told() {
            assert_eq!(line["error"], serde_json::Value::Null, "{deed}, {method}: {line}");
        }
    }
    assert_eq!(std::fs::read(place.file()).unwrap(), expected(), "{deed} changed the file");
}

fn reads(deed: &str) {
    let Some(place) = Place::new("reads") else { return };
    well(&place.command(deed).output().unwrap(), deed);
    place.cool();
    well(&place.with_shim(deed, &rules("")).output().unwrap(), deed);
}

#[test]
fn a_private_mapping_is_the_files_bytes_and_then_the_programs_own() {
    maps("read_and_write");
}

#[test]
fn a_mapping_can_be_given_to_system_calls_at_once() {
    let Some(place) = Place::new("maps") else { return };
    for method in METHODS {
        place.cool();
        well(&place.with_shim("write_out", &rules(method)).output().unwrap(), method);
        let out = std::fs::read(place.file().with_extension("bin.out")).unwrap();
        assert!(out == expected(), "{method}");
    }
}

#[test]
fn parts_are_unmapped_and_the_rest_stays() {
    maps("unmap_parts");
}

#[test]
fn what_is_unmapped_while_it_is_loaded_is_free_for_others() {
    maps("unmap_early");
}

#[test]
fn mappings_are_moved_cut_and_grown_as_those_of_files() {
    maps("remap");
}

#[test]
fn what_a_program_gives_up_is_the_files_again() {
    maps("dont_need");
}

#[test]
fn children_have_all_of_it_whenever_they_are_forked() {
    maps("fork_at_once");
}

#[test]
fn what_is_read_only_stays_so() {
    maps("read_only");
}

#[test]
fn shared_mappings_write_to_the_file_as_ever() {
    maps("shared_is_written");
}

#[test]
fn fixed_addresses_are_kept_and_replace_what_is_there() {
    maps("at_fixed_addresses");
}

#[test]
fn ranges_of_a_file_and_mistakes_are_what_they_were() {
    maps("ranges");
}

#[test]
fn a_program_that_closes_everything_keeps_its_images_and_gets_the_descriptors() {
    maps("closes_everything");
}

#[test]
fn threads_map_at_once_while_others_fork() {
    maps("by_threads");
}

#[test]
fn a_load_that_is_over_leaves_neither_threads_nor_descriptors() {
    maps("leaves_nothing");
}

#[test]
fn whole_files_are_read_and_the_position_is_behind_them() {
    reads("read_whole");
}

#[test]
fn reads_of_odd_lengths_give_every_byte_once() {
    reads("read_odd");
}

#[test]
fn reads_at_offsets_end_with_the_file() {
    reads("pread_anywhere");
}

#[test]
fn reads_into_several_buffers_fill_them_in_order() {
    reads("read_vectors");
}

#[test]
fn bad_descriptors_and_buffers_give_the_errors_they_gave() {
    reads("bad_reads");
}

#[test]
fn threads_that_share_a_descriptor_share_its_bytes() {
    reads("by_threads");
}

#[test]
fn pipes_are_read_as_ever_and_their_readers_can_be_cancelled() {
    reads("pipes_and_cancels");
}

#[test]
fn streams_are_read_to_the_end_and_say_so() {
    reads("stream_whole");
}

#[test]
fn streams_with_something_in_their_buffer_or_pushed_back_give_that_first() {
    reads("stream_odd");
}

#[test]
fn what_is_told_names_the_file_the_method_and_why() {
    let Some(place) = Place::new("maps") else { return };
    well(&place.with_shim("read_and_write", &rules("read-huge")).output().unwrap(), "a run");
    let told = place.told();
    assert_eq!(told.len(), 1, "{told:?}");
    let file = place.file().canonicalize().unwrap();
    assert_eq!(told[0]["path"], file.to_str().unwrap());
    assert_eq!((&told[0]["call"], &told[0]["program"]), (&"mmap".into(), &"maps".into()));
    assert_eq!(told[0]["method"], "read-huge");
    assert_eq!(told[0]["bytes"], FILE_BYTES);
    assert!(told[0]["why"].as_str().unwrap().contains("asked for by name"), "{told:?}");
    assert!(told[0]["complete_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn files_that_no_rule_is_for_and_files_that_change_are_left_to_the_program() {
    let Some(place) = Place::new("maps") else { return };
    let changing = "[[file]]\npattern = \"*.bin\"\nunchanging = false\n";
    for rules in ["[[file]]\npattern = \"*.other\"\n", changing, "", "[[file]]\nnonsense\n"] {
        let output = place.with_shim("read_and_write", rules).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(place.told(), [0; 0]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            said.contains("EVERMAP_LOAD_RULES is not understood"),
            rules.contains("nonsense")
        );
    }
}

#[test]
fn a_recording_of_one_run_is_used_by_the_next() {
    let Some(place) = Place::new("maps") else { return };
    let recording = place.directory.path().join("recording");
    let rules = format!("[[file]]\npattern = \"*.bin\"\nrecording = {recording:?}\n");
    for round in 0..2 {
        place.cool();
        well(&place.with_shim("write_out", &rules).output().unwrap(), "a run");
        let out = std::fs::read(place.file().with_extension("bin.out")).unwrap();
        assert!(out == expected(), "round {round}");
        if !recording.exists() {
            return println!("skipped: nothing can be recorded here");
        }
    }
    let told = place.told();
    let why = told[0]["why"].as_str().unwrap();
    assert!(!why.contains("recorded: each"), "{why}");
}

/// Loading `libgcc_s.so` would take as long as the shim itself.
#[test]
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn a_program_that_starts_with_the_shim_loads_no_shared_unwinder() {
    let loaded = Command::new("/bin/true")
        .env("LD_PRELOAD", shim())
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .output()
        .unwrap();
    let loaded = String::from_utf8(loaded.stdout).unwrap();
    assert!(loaded.contains("libevermap_load_shim.so"), "{loaded}");
    assert!(!loaded.contains("libgcc_s"), "{loaded}");
}
