//! Every error of every import names the cause and the remedy, such as a missing flag or right.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Fixture, Machine, WRITE, object};
use evermap_wasm::{Code, Guest, GuestOptions, Level};

const SNAPSHOT: u32 = 1;
const FLAG: &str = "--global-base=1342177280";

/// Returns a module with this memory and exports that call the imports of the same names.
fn plain_module(memory: &str) -> String {
    format!(
        r#"(module
            (import "evermap" "map" (func $map (param i32 i32 i32 i32) (result i32)))
            (import "evermap" "unmap" (func $unmap (param i32) (result i32)))
            (import "evermap" "commit" (func $commit (param i32) (result i32)))
            (import "evermap" "stat" (func $stat (param i32 i32 i32) (result i32)))
            (import "evermap" "last_fault" (func $last_fault (param i32 i32) (result i32)))
            {memory}
            (func (export "map") (result i32)
                (call $map (i32.const 16) (i32.const 4) (i32.const 0) (i32.const 3)))
            (func (export "unmap") (result i32) (call $unmap (i32.const 0x10000000)))
            (func (export "commit") (result i32) (call $commit (i32.const 0x10000000)))
            (func (export "stat") (result i32)
                (call $stat (i32.const 0x10000000) (i32.const 64) (i32.const 8)))
            (func (export "last_fault") (result i32) (call $last_fault (i32.const 256) (i32.const 2048)))
        )"#
    )
}

fn start(fixture: &Fixture, text: &str) -> Guest {
    let module = fixture.sandbox.compile("test", text.as_bytes()).unwrap();
    fixture.sandbox.start(&module, &fixture.application("app"), &GuestOptions::new()).unwrap()
}

fn call(guest: &mut Guest, function: &str) -> i32 {
    guest.call_with::<(), i32>(function, ()).unwrap().unwrap()
}

/// Memory and data of a wrongly linked module, and the expected message.
const WRONG: &[(&str, &str)] = &[
    // Linked without a flag; with the stack first and an old linker; with more memory.
    (r#"(memory (export "memory") 2) (data (i32.const 16) "heap")"#, FLAG),
    (r#"(memory (export "memory") 32768) (data (i32.const 16) "heap")"#, FLAG),
    (
        r#"(memory (export "memory") 32768) (data (i32.const 16) "heap") (data (i32.const 0x1fffffff) "xx")"#,
        FLAG,
    ),
    (r#"(memory (export "memory") 8192)"#, FLAG),
];

#[test]
fn a_module_without_the_window_can_read_the_missing_flag() {
    let fixture = Fixture::new();
    for (memory, needed) in WRONG {
        // The test reads the guest's memory by the export `read`.
        let text = plain_module(memory).replace(
            r#"(func (export "unmap")"#,
            r#"(func (export "read") (param i32) (result i32) (i32.load8_u (local.get 0)))
               (func (export "unmap")"#,
        );
        let mut guest = start(&fixture, &text);
        assert_eq!(call(&mut guest, "map"), -(Code::MemoryLayout as i32), "{memory}");
        let bytes = call(&mut guest, "last_fault");
        assert!(bytes > 4, "{memory}: {bytes}");
        let mut byte = |at: i32| guest.call_with::<i32, i32>("read", 256 + at).unwrap().unwrap();
        assert_eq!(byte(0), Code::MemoryLayout as i32);
        let words: Vec<u8> = (4..bytes).map(|at| byte(at) as u8).collect();
        let words = String::from_utf8(words).unwrap();
        assert!(words.contains(needed), "{memory}: {words}");
        let (code, told) = guest.last_refusal().unwrap();
        assert_eq!(
            (code, told),
            (Code::MemoryLayout, words.as_str()),
            "the host has the same error"
        );
    }
}

#[test]
fn the_host_has_the_error_of_a_module_that_exports_no_memory() {
    let fixture = Fixture::new();
    for memory in ["", r#"(memory (export "other") 32768)"#] {
        let mut guest = start(&fixture, &plain_module(memory));
        assert_eq!(call(&mut guest, "map"), -(Code::MemoryLayout as i32));
        let (_, words) = guest.last_refusal().unwrap();
        assert!(
            words.contains("does not export a memory") && words.contains("export one"),
            "{words}"
        );
        assert_eq!(call(&mut guest, "last_fault"), -(Code::MemoryLayout as i32));
    }
}

#[test]
fn the_other_imports_return_not_mapped_for_every_module() {
    let fixture = Fixture::new();
    for (memory, _) in WRONG.iter().chain(&[("", ""), (r#"(memory (export "memory") 20481)"#, "")])
    {
        let mut guest = start(&fixture, &plain_module(memory));
        for import in ["unmap", "commit", "stat"] {
            assert_eq!(call(&mut guest, import), -(Code::NotMapped as i32), "{import}");
            let (_, words) = guest.last_refusal().unwrap();
            assert!(words.contains("an address that `map` returned"), "{words}");
        }
    }
}

#[test]
fn a_call_from_the_start_function_is_refused() {
    let fixture = Fixture::new();
    let text =
        plain_module(r#"(memory (export "memory") 20481) (data (i32.const 0x50000000) "x")"#)
            .replace(
                r#"(func (export "map")"#,
                r#"(global $early (mut i32) (i32.const 0))
               (func $begin (global.set $early
                    (call $map (i32.const 0x50000000) (i32.const 1) (i32.const 0) (i32.const 3))))
               (start $begin)
               (func (export "early") (result i32) (global.get $early))
               (func (export "map")"#,
            );
    let mut guest = start(&fixture, &text);
    assert_eq!(call(&mut guest, "early"), -(Code::MemoryLayout as i32));
    let (_, words) = guest.last_refusal().unwrap();
    assert!(words.contains("start function"), "{words}");
}

/// Expected code, expected part of the message, and the call.
type Case = (Code, &'static str, fn(&mut Machine) -> i32);

/// Maps an object by name.
fn map_at(guest: &mut Machine, name: &str, level: u32) -> i32 {
    guest.put(0x5000_1000, name.as_bytes());
    guest.call("map_at", (0x5000_1000u32, name.len() as u32, 0u32, level)).unwrap()
}

#[test]
fn each_error_of_a_well_linked_guest_names_its_remedy() {
    let fixture = Fixture::new();
    let access = fixture.sandbox.access();
    let id = "app".parse().unwrap();
    // Own objects with lower rights, and objects of others, shared and not shared.
    for name in ["less", "none"] {
        let mut maker = fixture.start("app", "");
        assert!(map_at(&mut maker, name, WRITE) > 0);
    }
    access.grant(&id, &object("app:less"), Level::Snapshot).unwrap();
    access.grant(&id, &object("app:none"), Level::None).unwrap();
    let mut other = fixture.start("other", "");
    assert!(map_at(&mut other, "shared", WRITE) > 0);
    access.grant(&id, &object("other:shared"), Level::Snapshot).unwrap();
    access.set_quota(&id, 24 << 20).unwrap();
    let mut busy = fixture.start("app", "");
    assert!(map_at(&mut busy, "busy", WRITE) > 0);
    fixture.sandbox.store().create::<u64, _>("app:native", 1).unwrap();

    let cases: &[Case] = &[
        (Code::InvalidArgument, "pass 1 (snapshot)", |g| g.map(0, 4)),
        (Code::InvalidArgument, "pass an address in the guest's memory", |g| {
            g.call("map_at", (0x1000_0000u32, 4u32, 0u32, WRITE)).unwrap()
        }),
        (Code::InvalidArgument, "pass an address in the guest's memory", |g| {
            g.call("map_at", (u32::MAX, 4u32, 0u32, WRITE)).unwrap()
        }),
        (Code::InvalidName, "1 to 64 ASCII letters", |g| map_at(g, "a/b", WRITE)),
        (Code::InvalidName, "1 to 64 ASCII letters", |g| map_at(g, "a:b:c", WRITE)),
        (Code::InvalidName, "1 to 64 ASCII letters", |g| {
            g.call("map_at", (0x5000_1000u32, 4096u32, 0u32, WRITE)).unwrap()
        }),
        (Code::NotFound, "level write to create it", |g| map_at(g, "missing", SNAPSHOT)),
        (Code::Denied, "sandbox grant app app:less:write", |g| map_at(g, "less", WRITE)),
        (Code::Denied, "sandbox grant app app:none:snapshot", |g| map_at(g, "none", SNAPSHOT)),
        (Code::Denied, "sandbox grant app stranger:x:read", |g| map_at(g, "stranger:x", 2)),
        (Code::Denied, "with_key_of", |g| map_at(g, "other:shared", SNAPSHOT)),
        (Code::Busy, "map it later, or as a snapshot", |g| map_at(g, "busy", WRITE)),
        (Code::Busy, "unmap it first", |g| {
            assert!(map_at(g, "mine", WRITE) > 0);
            map_at(g, "mine", SNAPSHOT)
        }),
        (Code::Quota, "--quota", |g| {
            g.put(0x5000_1000, b"mine");
            g.call("map_at", (0x5000_1000u32, 4u32, 30u32 << 20, WRITE)).unwrap()
        }),
        (Code::NotMapped, "an address that `map` returned", |g| g.commit(0x1000_0000 + 77)),
        (Code::ReadOnly, "map it at level write", |g| {
            let base = map_at(g, "less", SNAPSHOT);
            g.commit(base as u32)
        }),
        (Code::OtherKind, "use another name", |g| map_at(g, "native", WRITE)),
    ];
    let mut guest = fixture.start("app", "");
    for (code, remedy, ask) in cases {
        assert_eq!(ask(&mut guest), -(*code as i32), "{remedy}: {}", guest.message());
        let words = guest.message();
        assert!(words.contains(remedy), "{code:?}: {words}");
    }
}
