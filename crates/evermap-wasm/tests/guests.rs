//! Operations of guests on objects, and their errors.
#![allow(clippy::unwrap_used)]

mod common;

use common::{DATA, Fixture, module, object};
use evermap_wasm::{Code, End, GuestOptions, Level, Sandbox};

const SNAPSHOT: u32 = 1;
const READ: u32 = 2;
const WRITE: u32 = 3;

fn refused(code: Code) -> i32 {
    -(code as i32)
}

#[test]
fn committed_data_are_at_the_same_address_in_the_next_run() {
    let fixture = Fixture::new();
    let mut first = fixture.start("app", "");
    let base = first.map_ok(65536, WRITE);
    let data = base + DATA;
    first.store(data, data + 4);
    first.store(data + 4, 42);
    assert_eq!(first.commit(base), 1);
    assert_eq!(first.commit(base), 0);
    drop(first);

    let directory = fixture.directory;
    drop(fixture.sandbox);
    let fixture =
        Fixture { sandbox: Sandbox::open(directory.path().join("store")).unwrap(), directory };
    let mut second = fixture.start("app", "");
    assert_eq!(second.map_ok(0, WRITE), base);
    let pointer = second.load(data);
    assert_eq!(second.load(pointer), 42);
    drop(second);
    fixture.assert_sound();
}

#[test]
fn uncommitted_data_are_discarded_however_a_guest_ends() {
    let fixture = Fixture::new();
    let mut guest = fixture.start("app", r#"(func (export "trap") unreachable)"#);
    let base = guest.map_ok(65536, WRITE);
    guest.store(base + DATA, 1);
    guest.commit(base);
    guest.store(base + DATA, 2);
    let End::Trapped(why) = guest.0.call("trap").unwrap() else { panic!("no trap") };
    assert!(why.contains("unreachable"), "{why}");
    let mut next = fixture.start("app", "");
    assert_eq!(next.map_ok(0, WRITE), base, "the dead guest no longer holds the object");
    assert_eq!(next.load(base + DATA), 1);
    next.store(base + DATA, 3);
    assert_eq!(next.unmap(base), 0);
    assert_eq!(next.load(base + DATA), 0);
    next.map_ok(0, WRITE);
    assert_eq!(next.load(base + DATA), 1);
}

#[test]
fn a_snapshot_is_private_and_cannot_be_committed() {
    let fixture = Fixture::new();
    let mut writer = fixture.start("app", "");
    let base = writer.map_ok(65536, WRITE);
    writer.store(base + DATA, 7);
    writer.commit(base);
    let mut readers = [fixture.start("app", ""), fixture.start("app", "")];
    for (index, reader) in readers.iter_mut().enumerate() {
        assert_eq!(reader.map_ok(0, SNAPSHOT), base);
        reader.store(base + DATA, 100 + index as u32);
    }
    for (index, reader) in readers.iter_mut().enumerate() {
        assert_eq!(reader.load(base + DATA), 100 + index as u32);
        assert_eq!(reader.commit(base), refused(Code::ReadOnly));
        assert!(reader.message().contains("snapshot"));
    }
    assert_eq!(writer.load(base + DATA), 7);
}

#[test]
fn a_second_writer_gets_busy() {
    let fixture = Fixture::new();
    let (mut one, mut other) = (fixture.start("app", ""), fixture.start("app", ""));
    let base = one.map_ok(0, WRITE);
    assert_eq!(other.map(0, WRITE), refused(Code::Busy));
    assert!(other.message().contains("another guest"), "{}", other.message());
    one.unmap(base);
    assert_eq!(other.map_ok(0, WRITE), base);
}

#[test]
fn a_mapped_object_grows_and_stat_shows_its_regions() {
    let fixture = Fixture::new();
    let mut guest = fixture.start("app", "");
    let base = guest.map_ok(65536, WRITE);
    for mib in [1, 3, 5, 20] {
        assert_eq!(guest.map_ok(mib << 20, WRITE), base);
    }
    let out = 0x5000_1000;
    let bytes: u32 = guest.call("stat", (base, out, 4096u32)).unwrap();
    let word = |guest: &mut common::Machine, at: u32| guest.load(out + at);
    assert_eq!((word(&mut guest, 0), word(&mut guest, 4), word(&mut guest, 8)), (1, WRITE, base));
    let regions = word(&mut guest, 12);
    assert!(regions > 1);
    assert_eq!(bytes, 64 + 48 * regions);
    let mut data_bytes = 0;
    for region in 0..regions {
        let at = 64 + 48 * region;
        let (first, length) = (word(&mut guest, at), word(&mut guest, at + 16));
        let meta = word(&mut guest, at + 32);
        data_bytes += length - meta;
        guest.store(first + length - 4, region);
    }
    assert!(data_bytes >= 20 << 20);
    assert_eq!(guest.commit(base), 1);
    drop(guest);
    let mut again = fixture.start("app", "");
    again.map_ok(0, SNAPSHOT);
    drop(again);
    fixture.assert_sound();
}

#[test]
fn stat_truncates_its_output_and_returns_the_full_length() {
    let fixture = Fixture::new();
    let mut guest = fixture.start("app", "");
    let base = guest.map_ok(0, WRITE);
    let out = 0x5000_1000u32;
    guest.store(out + 8, 99);
    let bytes: u32 = guest.call("stat", (base, out, 8u32)).unwrap();
    assert_eq!((bytes, guest.load(out), guest.load(out + 8)), (64 + 48, 1, 99));
}

#[test]
fn errors_have_a_code_and_a_helpful_message() {
    let fixture = Fixture::new();
    let mut guest = fixture.start("app", "");
    assert_eq!(guest.map(0, SNAPSHOT), refused(Code::NotFound));
    assert!(guest.message().contains("write to create it"));
    assert_eq!(guest.map(0, 0), refused(Code::InvalidArgument));
    assert_eq!(guest.map(0, 4), refused(Code::InvalidArgument));
    assert_eq!(guest.commit(0x1000_0000), refused(Code::NotMapped));
    assert_eq!(guest.unmap(7), refused(Code::NotMapped));
    let base = guest.map_ok(0, WRITE);
    assert_eq!(guest.map(0, SNAPSHOT), refused(Code::Busy));
    assert_eq!(guest.commit(base + 4096), refused(Code::NotMapped));
    assert_eq!(guest.0.report().refused_calls, 7);
}

#[test]
fn forged_and_overlong_names_are_invalid() {
    let fixture = Fixture::new();
    let mut guest = fixture.start("app", "");
    let at = 0x5000_1000u32;
    let long = "x".repeat(65);
    let names: [&[u8]; 14] = [
        b"",
        b".",
        b"..",
        b".x",
        b"../heap",
        b"a/b",
        b"a\0b",
        b"a b",
        b"a\n",
        "ä".as_bytes(),
        b"\xff\xfe",
        long.as_bytes(),
        b"app:",
        b":heap",
    ];
    for name in names {
        guest.put(at, name);
        for level in [SNAPSHOT, WRITE] {
            let parameters = (at, name.len() as u32, 0u32, level);
            let code: i32 = guest.call("map_at", parameters).unwrap();
            assert_eq!(code, refused(Code::InvalidName), "{name:?}");
        }
    }
    for length in [130u32, 4096, 1 << 20, u32::MAX] {
        let code: i32 = guest.call("map_at", (at, length, 0u32, WRITE)).unwrap();
        assert_eq!(code, refused(Code::InvalidName), "{length}");
    }
    assert_eq!(fixture.sandbox.store().list().unwrap(), Vec::<String>::new());
}

#[test]
fn another_applications_objects_are_accessible_only_while_shared() {
    let fixture = Fixture::new();
    let mut owner = fixture.start("owner", "");
    let base = owner.map_ok(65536, WRITE);
    owner.store(base + DATA, 5);
    owner.commit(base);
    let name = b"owner:heap";
    let reader = fixture
        .application("reader")
        .with_key_of("owner".parse().unwrap(), common::key_of("owner"));
    let module = fixture.sandbox.compile("test", module("").as_bytes()).unwrap();
    let mut guest =
        common::Machine(fixture.sandbox.start(&module, &reader, &GuestOptions::new()).unwrap());
    guest.put(0x5000_1000, name);
    let mut map = |level: u32| -> i32 {
        guest.call("map_at", (0x5000_1000u32, name.len() as u32, 0u32, level)).unwrap()
    };
    let access = fixture.sandbox.access();
    let (id, shared) = ("reader".parse().unwrap(), object("owner:heap"));
    for level in [SNAPSHOT, READ, WRITE] {
        assert_eq!(map(level), refused(Code::Denied));
    }
    access.grant(&id, &shared, Level::Snapshot).unwrap();
    assert_eq!(map(READ), refused(Code::Denied));
    assert_eq!(map(WRITE), refused(Code::Denied));
    assert_eq!(map(SNAPSHOT), base as i32);
    assert_eq!(guest.load(base + DATA), 5);
    guest.unmap(base);
    access.revoke(&id, &shared).unwrap();
    let parameters = (0x5000_1000u32, name.len() as u32, 0u32, SNAPSHOT);
    let code: i32 = guest.call("map_at", parameters).unwrap();
    assert_eq!(code, refused(Code::Denied));
}

#[test]
fn the_same_name_in_two_applications_is_two_objects() {
    let fixture = Fixture::new();
    let (mut one, mut other) = (fixture.start("one", ""), fixture.start("other", ""));
    let (first, second) = (one.map_ok(65536, WRITE), other.map_ok(65536, WRITE));
    assert_ne!(first, second, "the addresses differ, too");
    one.store(first + DATA, 1);
    other.store(second + DATA, 2);
    one.commit(first);
    other.commit(second);
    assert_eq!((one.load(first + DATA), one.load(second + DATA)), (1, 0));
    assert_eq!(fixture.sandbox.store().list().unwrap(), ["one:heap", "other:heap"]);
}

#[test]
fn an_owners_right_can_be_limited_in_the_table_or_for_a_run() {
    let fixture = Fixture::new();
    let mut owner = fixture.start("app", "");
    owner.map_ok(0, WRITE);
    drop(owner);
    let own = object("app:heap");
    let only_here = GuestOptions::new().allow(own.clone(), Level::Snapshot);
    let mut limited = fixture.start_with("app", "", &only_here);
    assert_eq!(limited.map(0, WRITE), refused(Code::Denied));
    limited.map_ok(0, SNAPSHOT);
    drop(limited);
    let id = "app".parse().unwrap();
    fixture.sandbox.access().grant(&id, &own, Level::None).unwrap();
    assert_eq!(fixture.start("app", "").map(0, SNAPSHOT), refused(Code::Denied));
    fixture.sandbox.access().revoke(&id, &own).unwrap();
    fixture.start("app", "").map_ok(0, WRITE);
}

#[test]
fn a_quota_limits_an_applications_addresses() {
    let fixture = Fixture::new();
    let mut guest = fixture.start("app", "");
    fixture.sandbox.access().set_quota(&"app".parse().unwrap(), 8 << 20).unwrap();
    let base = guest.map_ok(7 << 20, WRITE);
    assert_eq!(guest.map(9 << 20, WRITE), refused(Code::Quota));
    assert!(guest.message().contains("8388608"), "{}", guest.message());
    assert_eq!(guest.commit(base), 1, "the existing object still commits");
    let other: i32 = guest.call("map_other", (0u32, WRITE)).unwrap();
    assert_eq!(other, refused(Code::Quota));
}

#[test]
fn an_object_whose_growth_is_refused_stays_mapped() {
    let fixture = Fixture::new();
    let mut guest = fixture.start("app", "");
    let base = guest.map_ok(65536, WRITE);
    guest.store(base + DATA, 7);
    assert_eq!(guest.commit(base), 1);
    guest.unmap(base);
    fixture.sandbox.access().set_quota(&"app".parse().unwrap(), 8 << 20).unwrap();
    assert_eq!(guest.map(9 << 20, WRITE), refused(Code::Quota));
    assert_eq!(guest.commit(base), 1, "the object is mapped and partly grown");
    assert_eq!((guest.map(0, WRITE), guest.load(base + DATA)), (base as i32, 7));
    assert_eq!(guest.unmap(base), 0);
}

#[test]
fn a_removed_objects_addresses_are_not_assigned_to_a_new_one() {
    let fixture = Fixture::new();
    let mut guest = fixture.start("app", "");
    let base = guest.map_ok(0, WRITE);
    guest.unmap(base);
    fixture.sandbox.store().remove("app:heap").unwrap();
    let other: i32 = guest.call("map_other", (0u32, WRITE)).unwrap();
    assert!(other > base as i32);
    assert_ne!(guest.map_ok(0, WRITE), base);
    assert_eq!(guest.load(base), 0);
}

#[test]
fn the_error_for_a_module_without_the_window_names_the_flag() {
    let fixture = Fixture::new();
    let text = |memory: &str| {
        format!(
            r#"(module
                (import "evermap" "map" (func $map (param i32 i32 i32 i32) (result i32)))
                (import "evermap" "last_fault" (func $last_fault (param i32 i32) (result i32)))
                {memory}
                (func (export "run") (result i32)
                    (call $map (i32.const 16) (i32.const 4) (i32.const 0) (i32.const 3))))"#
        )
    };
    for memory in [
        r#"(memory (export "memory") 2) (data (i32.const 16) "heap")"#,
        r#"(memory (export "memory") 32768) (data (i32.const 16) "heap")"#,
        r#"(memory (export "memory") 32768) (data (i32.const 16) "heap") (data (i32.const 0x1fffffff) "xx")"#,
        r#"(memory (export "other") 32768) (data (i32.const 16) "heap")"#,
        r#"(memory (export "memory") 0)"#,
        "",
    ] {
        let module = fixture.sandbox.compile("test", text(memory).as_bytes()).unwrap();
        let application = fixture.application("app");
        let mut guest = fixture.sandbox.start(&module, &application, &GuestOptions::new()).unwrap();
        let code = guest.call_with::<(), i32>("run", ()).unwrap().unwrap();
        assert_eq!(code, refused(Code::MemoryLayout), "{memory}");
    }
}

#[test]
fn a_guest_ends_at_its_time_limit_or_without_fuel() {
    let spin = r#"(func (export "spin") (loop $again (br $again)))"#;
    let fixture = Fixture::new();
    let short = GuestOptions::new().time_max(std::time::Duration::from_millis(50));
    let mut guest = fixture.start_with("app", spin, &short);
    assert_eq!(guest.0.call("spin").unwrap(), End::OutOfTime);
    assert_eq!(guest.0.call("spin").unwrap(), End::OutOfTime, "an ended guest must not run again");
    let fixture = Fixture::with(evermap_wasm::SandboxOptions::new().fuel(true));
    let mut guest = fixture.start_with("app", spin, &GuestOptions::new().fuel(10_000));
    assert_eq!(guest.0.call("spin").unwrap(), End::OutOfFuel);
}

#[test]
fn a_time_limit_without_epochs_is_refused() {
    let fixture = Fixture::with(evermap_wasm::SandboxOptions::new().epochs(false));
    let module = fixture.sandbox.compile("test", module("").as_bytes()).unwrap();
    let short = GuestOptions::new().time_max(std::time::Duration::from_millis(50));
    let refused = fixture.sandbox.start(&module, &fixture.application("app"), &short);
    let why = refused.map(drop).unwrap_err().to_string();
    assert!(why.contains("without epochs"), "{why}");
}

#[test]
fn guests_with_equal_time_limits_all_end() {
    let fixture = Fixture::new();
    let spin = r#"(func (export "spin") (loop $again (br $again)))"#;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for round in 1..=10 {
                    let short = std::time::Duration::from_millis(round % 3 + 1);
                    let short = GuestOptions::new().time_max(short);
                    let mut guest = fixture.start_with("app", spin, &short);
                    assert_eq!(guest.0.call("spin").unwrap(), End::OutOfTime);
                }
            });
        }
    });
}

#[test]
fn a_directory_that_contains_the_store_cannot_be_preopened() {
    let fixture = Fixture::new();
    let module = fixture.sandbox.compile("test", module("").as_bytes()).unwrap();
    let application = fixture.application("app");
    let root = fixture.directory.path();
    std::os::unix::fs::symlink(root, root.join("link")).unwrap();
    std::fs::create_dir(root.join("beside")).unwrap();
    let start = |path: &std::path::Path| {
        let options = GuestOptions::new().preopen(path, "/d", true);
        fixture.sandbox.start(&module, &application, &options).map(drop)
    };
    for path in [
        root.to_path_buf(),
        fixture.store().to_path_buf(),
        fixture.store().join("objects"),
        root.join("link"),
    ] {
        let refused = start(&path);
        assert!(matches!(refused, Err(evermap_wasm::Error::PreopenHoldsStore { .. })), "{path:?}");
    }
    start(&root.join("beside")).unwrap();
}

#[test]
fn a_commit_to_a_removed_object_is_an_error_to_the_guest() {
    let fixture = Fixture::new();
    let mut guest = fixture.start("app", "");
    let base = guest.map_ok(65536, WRITE);
    guest.store(base + DATA, 1);
    assert_eq!(guest.commit(base), 1);
    std::fs::remove_file(fixture.file_of("app:heap")).unwrap();
    guest.store(base + DATA, 2);
    assert_eq!(guest.commit(base), refused(Code::Io));
    let words = guest.message();
    assert!(words.contains("removed while it was open"), "{words}");
    assert!(!words.contains('/'), "a host path is shown: {words}");
}

#[test]
fn the_pooling_allocator_is_refused_by_name() {
    use evermap_wasm::wasmtime::{InstanceAllocationStrategy, PoolingAllocationConfig};
    let directory = tempfile::tempdir().unwrap();
    let options = evermap_wasm::SandboxOptions::new().config(|config| {
        let mut pooling = PoolingAllocationConfig::default();
        pooling.total_memories(1).total_core_instances(1).total_tables(1).total_stacks(1);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pooling));
    });
    let refused = options.open(directory.path().join("store")).map(drop).unwrap_err();
    assert!(refused.to_string().contains("pooling allocator"), "{refused}");
}
