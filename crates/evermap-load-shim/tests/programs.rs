//! C programs that map and read a file in every way that the shim could break. Each checks every
//! byte, and also runs without the shim to show that the program itself is right.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The last page is incomplete, and loads take long enough to be running while programs continue.
const FILE_BYTES: usize = (12 << 20) + 123;
/// The policy's choice, and one method of every kind.
const METHODS: [&str; 6] =
    ["", "takeover", "takeover-on-demand", "read-huge", "read-uncached", "mmap-huge"];

fn shim() -> PathBuf {
    // Next to the directory of the tests.
    let test = std::env::current_exe().unwrap();
    let built = test.parent().unwrap().parent().unwrap().join("libevermap_load_shim.so");
    let other = test.parent().unwrap().join("libevermap_load_shim.so");
    [built, other].into_iter().find(|path| path.is_file()).expect("the shim library is not built")
}

struct Place {
    directory: tempfile::TempDir,
    program: PathBuf,
}

impl Place {
    /// Creates a directory with a program and its file. Returns `None` without a C compiler.
    fn new(program: &str) -> Option<Place> {
        // Use a disk if there is one, because most methods are for disks.
        let directory = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(program);
        let binary = directory.path().join(program);
        let compiled = Command::new("cc")
            .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-pthread", "-o"])
            .arg(&binary)
            .arg(source.with_extension("c"))
            .output();
        let Ok(compiled) = compiled else {
            println!("skipped: there is no C compiler");
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

    /// Evicts the file from the cache before the next run.
    fn evict(&self) {
        let file = std::fs::File::open(self.file()).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    fn command(&self, action: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(action).arg(self.file()).env_remove("LD_PRELOAD");
        command
    }

    fn with_shim(&self, action: &str, rules: &str) -> Command {
        let _ = std::fs::remove_file(self.report());
        let mut command = self.command(action);
        command.env("LD_PRELOAD", shim()).env("EVERMAP_LOAD_RULES", rules);
        command.env("EVERMAP_LOAD_REPORT", self.report());
        command
    }

    fn report_lines(&self) -> Vec<serde_json::Value> {
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

fn assert_success(output: &Output, what: &str) {
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}: {printed}", output.status);
    assert_eq!(printed, "", "{what}");
}

fn rules(method: &str) -> String {
    match method {
        "" => "[[file]]\npattern = \"*.bin\"\n".into(),
        method => format!("[[file]]\npattern = \"*.bin\"\nmethod = \"{method}\"\n"),
    }
}

/// Each action succeeds with and without the shim, for every method.
fn maps(action: &str) {
    let Some(place) = Place::new("maps") else { return };
    assert_success(&place.command(action).output().unwrap(), action);
    for method in METHODS {
        place.evict();
        assert_success(
            &place.with_shim(action, &rules(method)).output().unwrap(),
            &format!("{action}, {method}"),
        );
        for line in place.report_lines() {
            assert_eq!(line["error"], serde_json::Value::Null, "{action}, {method}: {line}");
        }
    }
    assert_eq!(std::fs::read(place.file()).unwrap(), expected(), "{action} changed the file");
}

fn reads(action: &str) {
    let Some(place) = Place::new("reads") else { return };
    assert_success(&place.command(action).output().unwrap(), action);
    place.evict();
    assert_success(&place.with_shim(action, &rules("")).output().unwrap(), action);
}

#[test]
fn a_private_mapping_shows_the_file_and_can_be_written() {
    maps("read_and_write");
}

#[test]
fn system_calls_can_use_a_mapping_at_once() {
    let Some(place) = Place::new("maps") else { return };
    for method in METHODS {
        place.evict();
        assert_success(&place.with_shim("write_out", &rules(method)).output().unwrap(), method);
        let out = std::fs::read(place.file().with_extension("bin.out")).unwrap();
        assert!(out == expected(), "{method}");
    }
}

#[test]
fn unmapping_a_part_keeps_the_rest() {
    maps("unmap_parts");
}

#[test]
fn addresses_unmapped_during_a_load_are_free() {
    maps("unmap_early");
}

#[test]
fn mappings_are_moved_shrunk_and_grown_like_file_mappings() {
    maps("remap");
}

#[test]
fn discarded_pages_show_the_file_again() {
    maps("dont_need");
}

#[test]
fn children_have_the_whole_image_whenever_they_are_forked() {
    maps("fork_at_once");
}

#[test]
fn read_only_mappings_stay_read_only() {
    maps("read_only");
}

#[test]
fn shared_mappings_write_to_the_file() {
    maps("shared_is_written");
}

#[test]
fn fixed_addresses_replace_existing_mappings() {
    maps("at_fixed_addresses");
}

#[test]
fn file_ranges_and_errors_are_unchanged() {
    maps("ranges");
}

#[test]
fn a_program_that_closes_all_descriptors_keeps_its_images() {
    maps("closes_everything");
}

#[test]
fn threads_map_while_others_fork() {
    maps("by_threads");
}

#[test]
fn a_finished_load_leaves_no_threads_or_descriptors() {
    maps("leaves_nothing");
}

#[test]
fn reading_a_whole_file_moves_the_position_to_its_end() {
    reads("read_whole");
}

#[test]
fn reads_of_odd_lengths_return_every_byte_once() {
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
fn bad_descriptors_and_buffers_give_unchanged_errors() {
    reads("bad_reads");
}

#[test]
fn threads_that_share_a_descriptor_share_its_bytes() {
    reads("by_threads");
}

#[test]
fn pipe_reads_are_unchanged_and_can_be_cancelled() {
    reads("pipes_and_cancels");
}

#[test]
fn streams_are_read_to_the_end_and_report_it() {
    reads("stream_whole");
}

#[test]
fn buffered_and_pushed_back_bytes_are_read_first() {
    reads("stream_odd");
}

#[test]
fn the_report_names_the_file_the_method_and_the_reason() {
    let Some(place) = Place::new("maps") else { return };
    assert_success(
        &place.with_shim("read_and_write", &rules("read-huge")).output().unwrap(),
        "a run",
    );
    let lines = place.report_lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let file = place.file().canonicalize().unwrap();
    assert_eq!(lines[0]["path"], file.to_str().unwrap());
    assert_eq!((&lines[0]["call"], &lines[0]["program"]), (&"mmap".into(), &"maps".into()));
    assert_eq!(lines[0]["method"], "read-huge");
    assert_eq!(lines[0]["bytes"], FILE_BYTES);
    assert!(lines[0]["why"].as_str().unwrap().contains("requested by name"), "{lines:?}");
    assert!(lines[0]["complete_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn unmatched_and_changing_files_are_not_loaded() {
    let Some(place) = Place::new("maps") else { return };
    let changing = "[[file]]\npattern = \"*.bin\"\nunchanging = false\n";
    for rules in ["[[file]]\npattern = \"*.other\"\n", changing, "", "[[file]]\nnonsense\n"] {
        let output = place.with_shim("read_and_write", rules).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(place.report_lines(), [0; 0]);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(printed.contains("cannot parse EVERMAP_LOAD_RULES"), rules.contains("nonsense"));
    }
}

#[test]
fn the_recording_of_one_run_is_used_by_the_next() {
    let Some(place) = Place::new("maps") else { return };
    let recording = place.directory.path().join("recording");
    let rules = format!("[[file]]\npattern = \"*.bin\"\nrecording = {recording:?}\n");
    for round in 0..2 {
        place.evict();
        assert_success(&place.with_shim("write_out", &rules).output().unwrap(), "a run");
        let out = std::fs::read(place.file().with_extension("bin.out")).unwrap();
        assert!(out == expected(), "round {round}");
        if !recording.exists() {
            return println!("skipped: recording is not possible");
        }
    }
    let lines = place.report_lines();
    let why = lines[0]["why"].as_str().unwrap();
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
