//! One budget limits everything that a guest can grow. Each kind of growth is tested, with the
//! command's defaults and with an embedder's limits.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Fixture, WRITE};
use evermap_wasm::{End, Error, Guest, GuestOptions, SandboxOptions};

const MIB: usize = 1 << 20;
const BUDGET: usize = 64 * MIB;
/// Bytes that the host counts per table element.
const ELEMENT_BYTES: usize = 16;

/// Starts a module without objects, with a budget.
fn start(fixture: &Fixture, text: &str, budget: usize) -> Result<Guest, Error> {
    let module = fixture.sandbox.compile("grows", text.as_bytes()).unwrap();
    let options = GuestOptions::new().memory_bytes_max(budget);
    fixture.sandbox.start(&module, &fixture.application("app"), &options)
}

/// Returns a function that grows one memory or table until that is refused, and returns its size.
fn loop_of(grow: &str, size: &str) -> String {
    format!(
        r#"(func (export "grow") (result i32)
            (loop $again (br_if $again (i32.ne (i32.const -1) {grow})))
            {size})"#
    )
}

#[test]
fn all_growth_of_a_guest_stays_within_its_budget() {
    let fixture = Fixture::new();
    let memory = |n: u32| {
        loop_of(
            &format!("(memory.grow {n} (i32.const 16))"),
            &format!("(i32.mul (i32.const 65536) (memory.size {n}))"),
        )
    };
    let table = |n: u32| {
        loop_of(
            &format!("(table.grow {n} (ref.null func) (i32.const 1000))"),
            &format!("(i32.mul (i32.const {ELEMENT_BYTES}) (table.size {n}))"),
        )
    };
    let mib = MIB as u32;
    for (what, module, slack) in [
        ("a memory", format!("(memory 1) {}", memory(0)), mib),
        ("a second memory", format!("(memory 1) (memory 1) {}", memory(1)), mib + 65536),
        ("a table", format!("(table 1 funcref) {}", table(0)), 16_000),
        ("a second table", format!("(table 1 funcref) (table 1 funcref) {}", table(1)), 16_016),
        ("a table beside a memory", format!("(memory 512) (table 1 funcref) {}", table(0)), 16_000),
    ] {
        let mut guest = start(&fixture, &format!("(module {module})"), BUDGET).unwrap();
        let grown = guest.call_with::<(), u32>("grow", ()).unwrap().unwrap();
        let beside = if what.contains("beside") { 32 * mib } else { 0 };
        let left = BUDGET as u32 - beside - grown;
        assert!(grown > 0 && left <= slack, "{what}: {left} bytes left");
        assert_eq!(guest.report().refused_growths, 1, "{what}");
    }
}

#[test]
fn a_growth_beyond_the_budget_is_refused_for_every_size() {
    let fixture = Fixture::new();
    let text = r#"(module (memory 1) (table 1 funcref)
        (func (export "memory") (result i32) (memory.grow (i32.const 65535)))
        (func (export "table") (result i32) (table.grow (ref.null func) (i32.const -2))))"#;
    for function in ["memory", "table"] {
        let mut guest = start(&fixture, text, BUDGET).unwrap();
        assert_eq!(guest.call_with::<(), i32>(function, ()).unwrap().unwrap(), -1, "{function}");
    }
}

#[test]
fn the_default_budget_is_four_gib() {
    let fixture = Fixture::new();
    let text = r#"(module (memory 1) (table 1 funcref)
        (func (export "table") (result i32) (table.grow (ref.null func) (i32.const 0x10000000))))"#;
    let module = fixture.sandbox.compile("grows", text.as_bytes()).unwrap();
    let application = fixture.application("app");
    let mut guest = fixture.sandbox.start(&module, &application, &GuestOptions::new()).unwrap();
    assert_eq!(guest.memory_bytes_max(), 1 << 32);
    assert_eq!(guest.call_with::<(), i32>("table", ()).unwrap().unwrap(), -1);
}

#[test]
fn the_error_for_a_module_above_its_budget_names_the_needed_bytes() {
    let fixture = Fixture::new();
    for (module, needed_mib) in [
        (common::module(""), 1281),
        ("(module (memory 1040))".to_string(), 65),
        ("(module (memory 520) (memory 520))".to_string(), 65),
        ("(module (table 4194305 funcref))".to_string(), 65),
    ] {
        let error = start(&fixture, &module, BUDGET).map(drop).unwrap_err();
        let Error::BudgetTooSmall { needed_bytes, budget_bytes, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(needed_bytes.div_ceil(MIB as u64), needed_mib);
        assert_eq!(*budget_bytes, BUDGET as u64);
        let words = error.to_string();
        assert!(words.contains(&format!("at least {needed_mib} MiB")), "{words}");
    }
    start(&fixture, "(module (memory 1024))", BUDGET).unwrap();
    start(&fixture, &common::module(""), 1282 * MIB).unwrap();
}

#[test]
fn endless_recursion_traps_with_a_clear_message() {
    let fixture = Fixture::new();
    let text = r#"(module (func $deeper (export "deeper") (call $deeper) (call $deeper)))"#;
    let mut guest = start(&fixture, text, BUDGET).unwrap();
    let End::Trapped(why) = guest.call("deeper").unwrap() else { panic!("no trap") };
    assert!(why.contains("call stack exhausted"), "{why}");
}

#[test]
fn the_numbers_of_memories_and_tables_are_limited() {
    let fixture = Fixture::new();
    for (what, one, count) in [("memories", "(memory 0)", 17), ("tables", "(table 0 funcref)", 101)]
    {
        let text = format!("(module {})", one.repeat(count));
        let module = fixture.sandbox.compile("many", text.as_bytes());
        // Unless the validator has already rejected the module.
        let Ok(module) = module else { continue };
        let application = fixture.application("app");
        let started = fixture.sandbox.start(&module, &application, &GuestOptions::new());
        assert!(matches!(started.map(drop), Err(Error::Module { .. })), "{what}");
    }
}

#[test]
fn open_wasi_handles_are_limited() {
    let fixture = Fixture::new();
    let seen = fixture.directory.path().join("seen");
    std::fs::create_dir(&seen).unwrap();
    std::fs::write(seen.join("file"), "text").unwrap();
    // Opens the file repeatedly. Returns the number of successes, and the error after them.
    let text = r#"(module
        (import "wasi_snapshot_preview1" "path_open"
            (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (data (i32.const 16) "file")
        (global $opened (export "opened") (mut i32) (i32.const 0))
        (func (export "open") (result i32) (local $error i32)
            (loop $again
                (local.set $error (call $open (i32.const 3) (i32.const 0) (i32.const 16) (i32.const 4)
                    (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 64)))
                (if (i32.eqz (local.get $error)) (then
                    (global.set $opened (i32.add (i32.const 1) (global.get $opened)))
                    (br_if $again (i32.lt_u (global.get $opened) (i32.const 100000))))))
            (local.get $error))
        (func (export "count") (result i32) (global.get $opened)))"#;
    let module = fixture.sandbox.compile("opens", text.as_bytes()).unwrap();
    let options = GuestOptions::new().preopen(&seen, "/seen", false);
    let mut guest = fixture.sandbox.start(&module, &fixture.application("app"), &options).unwrap();
    let before = std::fs::read_dir("/proc/self/fd").unwrap().count();
    // Both an error of WASI and a trap are accepted.
    let opened = guest.call_with::<(), i32>("open", ()).unwrap();
    let during = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert_ne!(opened, Ok(0), "no open was refused");
    // The runtime itself uses a few descriptors.
    assert!(during - before <= 256 + 8, "{} files are open", during - before);
    drop(guest);
    std::fs::read(seen.join("file")).unwrap();
}

#[test]
fn mapped_objects_are_limited_by_the_window_and_the_quota() {
    let fixture = Fixture::with(SandboxOptions::new());
    let mut guest = fixture.start("app", "");
    fixture.sandbox.access().set_quota(&"app".parse().unwrap(), 32 * MIB as u64).unwrap();
    let mut mapped = 0;
    for number in 0..32 {
        let name = format!("o{number}");
        guest.put(0x5000_1000, name.as_bytes());
        let length = name.len() as u32;
        let base: i32 = guest.call("map_at", (0x5000_1000u32, length, 0u32, WRITE)).unwrap();
        if base < 0 {
            assert!(guest.message().contains("--quota"), "{}", guest.message());
            break;
        }
        mapped += 1;
    }
    assert_eq!(mapped, 8, "4 MiB each");
}
