//! Every kind of fault that a guest can cause, with and without the fault guard. With the guard at
//! most the guest ends. Without it the process ends, which shows that the test can fail.
//!
//! Each case runs in a child process of this test program.
#![allow(clippy::unwrap_used)]

mod common;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use common::{DATA, Fixture, Machine};
use evermap_wasm::{Code, End, Fault, GuestOptions, SandboxOptions, Unmapped};

const CASE: &str = "EVERMAP_FAULT_CASE";
const READ: u32 = 2;
const SNAPSHOT: u32 = 1;
const WRITE: u32 = 3;

/// Effect of the fault without the guard.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Without {
    /// wasmtime turns it into a trap.
    Trap,
    /// The fault has no effect.
    Lives,
    /// The signal ends the process.
    Dies(i32),
}

struct Case {
    name: &'static str,
    /// Body of the guest's function `go`, which has the object's address and an address of data in
    /// it.
    body: &'static str,
    /// The mapped object, and the contents of the rest of the window.
    setting: Setting,
    without: Without,
    /// Expected end of the guest with the guard.
    with: With,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum With {
    Trapped,
    Faulted(Fault),
    Lives,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Setting {
    /// The object is mapped read-only, and the data address is in it.
    ReadOnly,
    /// No object is mapped at the data address, and the window has holes.
    Hole,
    /// The object is mapped as a snapshot, and then its file is truncated.
    CutSnapshot,
    /// The object is mapped for writing, and then its file is truncated.
    CutSession,
    /// The defaults: no object is mapped at the data address, which reads as zeros.
    Zeros,
}

const fn trap(name: &'static str, body: &'static str, setting: Setting) -> Case {
    Case { name, body, setting, without: Without::Trap, with: With::Trapped }
}

/// Faults that wasmtime leaves to its host, and a truncated file, also in guest code.
const fn host(name: &'static str, body: &'static str, setting: Setting) -> Case {
    let (without, fault) = match setting {
        Setting::CutSnapshot | Setting::CutSession => (Without::Dies(libc::SIGBUS), Fault::Bus),
        _ => (Without::Dies(libc::SIGSEGV), Fault::Segmentation),
    };
    Case { name, body, setting, without, with: With::Faulted(fault) }
}

const fn lives(name: &'static str, body: &'static str, setting: Setting) -> Case {
    Case { name, body, setting, without: Without::Lives, with: With::Lives }
}

const STORE: &str = "(i32.store (local.get $data) (i32.const 1))";
const LOAD: &str = "(drop (i32.load (local.get $data)))";
const FILL: &str = "(memory.fill (local.get $data) (i32.const 1) (i32.const 100))";
const COPY_FROM: &str = "(memory.copy (i32.const 0x50001000) (local.get $data) (i32.const 100))";
const COPY_TO: &str = "(memory.copy (local.get $data) (i32.const 0x50001000) (i32.const 100))";
const INIT: &str = "(memory.init $passive (local.get $data) (i32.const 0) (i32.const 4))";
const ATOMIC: &str = "(drop (i32.atomic.rmw.add (local.get $data) (i32.const 1)))";
const SIMD: &str = "(v128.store (local.get $data) (v128.const i64x2 1 2))";
/// WASI writes into the guest's memory.
const WASI_IN: &str = "(drop (call $random_get (local.get $data) (i32.const 64)))";
/// WASI reads from the guest's memory and writes to the standard error.
const WASI_OUT: &str = r#"
    (i32.store (i32.const 0x50002000) (local.get $data))
    (i32.store (i32.const 0x50002004) (i32.const 16))
    (drop (call $fd_write (i32.const 2) (i32.const 0x50002000) (i32.const 1) (i32.const 0x50002010)))"#;
/// A loop without calls after a fault in host code: only the epoch ends it.
const FILL_AND_SPIN: &str =
    "(memory.fill (local.get $data) (i32.const 1) (i32.const 100)) (loop $again (br $again))";

const CASES: &[Case] = &[
    trap("store_read_only", STORE, Setting::ReadOnly),
    trap("atomic_read_only", ATOMIC, Setting::ReadOnly),
    trap("simd_read_only", SIMD, Setting::ReadOnly),
    lives("load_read_only", LOAD, Setting::ReadOnly),
    lives("copy_from_read_only", COPY_FROM, Setting::ReadOnly),
    lives("wasi_out_read_only", WASI_OUT, Setting::ReadOnly),
    host("fill_read_only", FILL, Setting::ReadOnly),
    host("copy_to_read_only", COPY_TO, Setting::ReadOnly),
    host("init_read_only", INIT, Setting::ReadOnly),
    host("wasi_in_read_only", WASI_IN, Setting::ReadOnly),
    host("fill_and_spin_read_only", FILL_AND_SPIN, Setting::ReadOnly),
    trap("store_hole", STORE, Setting::Hole),
    trap("load_hole", LOAD, Setting::Hole),
    host("fill_hole", FILL, Setting::Hole),
    host("copy_from_hole", COPY_FROM, Setting::Hole),
    host("copy_to_hole", COPY_TO, Setting::Hole),
    host("init_hole", INIT, Setting::Hole),
    host("wasi_in_hole", WASI_IN, Setting::Hole),
    host("wasi_out_hole", WASI_OUT, Setting::Hole),
    host("load_cut_snapshot", LOAD, Setting::CutSnapshot),
    host("store_cut_session", STORE, Setting::CutSession),
    host("copy_from_cut_snapshot", COPY_FROM, Setting::CutSnapshot),
    host("fill_cut_session", FILL, Setting::CutSession),
    host("wasi_in_cut_session", WASI_IN, Setting::CutSession),
    host("wasi_out_cut_snapshot", WASI_OUT, Setting::CutSnapshot),
    lives("store_zeros", STORE, Setting::Zeros),
    lives("load_zeros", LOAD, Setting::Zeros),
    lives("fill_zeros", FILL, Setting::Zeros),
    lives("copy_from_zeros", COPY_FROM, Setting::Zeros),
    lives("init_zeros", INIT, Setting::Zeros),
    lives("wasi_in_zeros", WASI_IN, Setting::Zeros),
    lives("wasi_out_zeros", WASI_OUT, Setting::Zeros),
];

/// Returns a module with this body. It differs from the other tests' module because it imports WASI
/// functions.
fn module_of(body: &str) -> String {
    format!(
        r#"(module
            (import "evermap" "map" (func $map (param i32 i32 i32 i32) (result i32)))
            (import "evermap" "commit" (func $commit (param i32) (result i32)))
            (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 20482)
            (data (i32.const 0x50000000) "heap")
            (data $passive "abcd")
            (func (export "map_heap") (param $bytes i32) (param $level i32) (result i32)
                (call $map (i32.const 0x50000000) (i32.const 4) (local.get $bytes) (local.get $level)))
            (func (export "commit") (param i32) (result i32) (call $commit (local.get 0)))
            (func (export "store") (param i32 i32) (i32.store (local.get 0) (local.get 1)))
            (func (export "go") (param $data i32) {body}))"#
    )
}

/// Runs one case and ends the process: with 10 if the guest continued, 11 after a trap, 12 after
/// SIGBUS and 13 after SIGSEGV of host code.
fn run_case(case: &Case, guarded: bool) {
    let mut options = SandboxOptions::new();
    match case.setting {
        Setting::ReadOnly => options = options.read_only_pages(true),
        Setting::Hole => options = options.unmapped(Unmapped::Hole),
        _ => {}
    }
    if !guarded {
        // SAFETY: this test process is meant to end by such faults.
        options = unsafe { options.without_guard() };
    }
    let fixture = Fixture::with(options);
    let text = module_of(case.body);
    let module = fixture.sandbox.compile(case.name, text.as_bytes()).unwrap();
    let start = || {
        let application = fixture.application("app");
        let guest_options = GuestOptions::new().inherit_stdio();
        Machine(fixture.sandbox.start(&module, &application, &guest_options).unwrap())
    };
    let mut maker = start();
    let made = maker.map_ok_without_message(1 << 20, WRITE);
    maker.store(made + DATA, 1);
    assert_eq!(maker.commit(made), 1);
    drop(maker);

    let mut guest = start();
    let level = match case.setting {
        Setting::ReadOnly => Some(READ),
        Setting::CutSnapshot => Some(SNAPSHOT),
        Setting::CutSession => Some(WRITE),
        Setting::Hole | Setting::Zeros => None,
    };
    if let Some(level) = level {
        assert_eq!(guest.map_ok_without_message(0, level), made);
    }
    if matches!(case.setting, Setting::CutSnapshot | Setting::CutSession) {
        let file = std::fs::OpenOptions::new().write(true).open(fixture.file_of("app:heap"));
        file.unwrap().set_len(4096).unwrap();
    }
    // Far enough from the touched page.
    let end = guest.0.call_with::<u32, ()>("go", made + DATA + 0x40000).unwrap();
    let code = match &end {
        Ok(()) => 10,
        Err(End::Trapped(_)) => 11,
        Err(End::Faulted { fault: Fault::Bus, .. }) => 12,
        Err(End::Faulted { fault: Fault::Segmentation, window_offset }) => {
            assert_eq!(*window_offset, u64::from(made + DATA + 0x40000 - 0x1000_0000));
            13
        }
        Err(other) => panic!("{other:?}"),
    };
    if end.is_err() {
        // A dead guest returns its end for every call.
        assert_eq!(guest.0.call_with::<u32, i32>("commit", made).unwrap().err(), end.err());
    }
    drop(guest);
    // The host continues: another guest maps the object with its last commit, if its file is
    // intact.
    if !matches!(case.setting, Setting::CutSnapshot | Setting::CutSession) {
        let mut next = start();
        assert_eq!(next.map_ok_without_message(0, WRITE), made);
    } else {
        let mut next = start();
        let code: i32 = next.call("map_heap", (0u32, SNAPSHOT)).unwrap();
        assert_eq!(code, -(Code::Damaged as i32));
    }
    std::process::exit(code);
}

impl Machine {
    fn map_ok_without_message(&mut self, bytes: u32, level: u32) -> u32 {
        let base = self.map(bytes, level);
        assert!(base > 0, "{base}");
        base as u32
    }
}

fn in_child_process(case: &Case, guarded: bool) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "one_case_in_a_child_process", "--nocapture"])
        .env(CASE, format!("{} {guarded}", case.name))
        .output()
        .unwrap()
}

#[test]
fn one_case_in_a_child_process() {
    let Ok(asked) = std::env::var(CASE) else { return };
    let (name, guarded) = asked.split_once(' ').unwrap();
    let case = CASES.iter().find(|case| case.name == name).unwrap();
    run_case(case, guarded == "true");
}

#[test]
fn with_the_guard_a_fault_never_ends_the_host() {
    for case in CASES {
        let output = in_child_process(case, true);
        let expected = match case.with {
            With::Lives => 10,
            With::Trapped => 11,
            With::Faulted(Fault::Bus) => 12,
            With::Faulted(Fault::Segmentation) => 13,
        };
        assert_eq!(output.status.code(), Some(expected), "{}: {output:?}", case.name);
    }
}

#[test]
fn without_the_guard_the_same_faults_end_the_process() {
    // Skipped, because the guest would loop forever.
    for case in CASES.iter().filter(|case| case.body != FILL_AND_SPIN) {
        let output = in_child_process(case, false);
        let status = output.status;
        let as_expected = match case.without {
            Without::Lives => status.code() == Some(10),
            Without::Trap => status.code() == Some(11),
            Without::Dies(signal) => status.signal() == Some(signal),
        };
        assert!(as_expected, "{}: {:?}, {output:?}", case.name, case.without);
    }
}

#[test]
fn a_fault_in_one_guest_does_not_end_another() {
    let fixture = Fixture::with(SandboxOptions::new().read_only_pages(true));
    let mut survivor = fixture.start("one", "");
    let own = survivor.map_ok(65536, WRITE);
    let fill = r#"(func (export "fill") (param i32)
        (memory.fill (local.get 0) (i32.const 1) (i32.const 10)))"#;
    let mut maker = fixture.start("app", "");
    let base = maker.map_ok(65536, WRITE);
    maker.commit(base);
    drop(maker);
    let mut doomed = fixture.start("app", fill);
    assert_eq!(doomed.map(0, READ), base as i32);
    let mut bystander = fixture.start("app", "");
    bystander.map_ok(0, SNAPSHOT);
    let end = doomed.0.call_with::<u32, ()>("fill", base + DATA).unwrap();
    assert!(matches!(end, Err(End::Faulted { .. })), "{end:?}");
    for (guest, address) in [(&mut survivor, own + DATA), (&mut bystander, base + DATA)] {
        guest.store(address, 5);
        assert_eq!(guest.load(address), 5);
    }
    assert_eq!(survivor.commit(own), 1);
}

#[test]
fn an_engine_created_before_the_guard_is_an_error() {
    if std::env::var_os(CASE).is_some() {
        let _engine = evermap_wasm::wasmtime::Engine::default();
        let directory = tempfile::tempdir().unwrap();
        let late = evermap_wasm::Sandbox::open(directory.path().join("store"));
        assert!(matches!(late, Err(evermap_wasm::Error::GuardTooLate)), "{late:?}");
        std::process::exit(10);
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "an_engine_created_before_the_guard_is_an_error", "--nocapture"])
        .env(CASE, "late")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(10), "{output:?}");
}

#[test]
fn other_faults_go_to_the_previous_handler() {
    if std::env::var_os(CASE).is_some() {
        evermap_wasm::FaultGuard::install().unwrap();
        // SAFETY: this test process is meant to end by this fault.
        unsafe { std::ptr::without_provenance_mut::<u32>(16).write_volatile(1) };
        std::process::exit(10);
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "other_faults_go_to_the_previous_handler", "--nocapture"])
        .env(CASE, "null")
        .output()
        .unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{output:?}");
}
