//! Guests as a user runs them: rights, applications, limits and errors. `guest_programs` tests
//! guests that are built from source.
#![cfg(feature = "sandbox")]
#![allow(clippy::unwrap_used)]

mod common;

use common::{Place, contents};

/// A guest that only exits with 7.
const EXITS: &str = r#"(module
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (func (export "_start") (call $exit (i32.const 7))))"#;

/// A guest that maps `heap` for writing, increments its first word, and exits with the result. If
/// it cannot map `heap`, it exits with the negated error code.
const COUNTS: &str = r#"(module
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (import "evermap" "map" (func $map (param i32 i32 i32 i32) (result i32)))
    (import "evermap" "commit" (func $commit (param i32) (result i32)))
    (memory (export "memory") 20481)
    (data (i32.const 0x50000000) "heap")
    (func (export "_start") (local $object i32) (local $count i32)
        (local.set $object (call $map (i32.const 0x50000000) (i32.const 4) (i32.const 65536) (i32.const 3)))
        (if (i32.lt_s (local.get $object) (i32.const 0))
            (then (call $exit (i32.sub (i32.const 100) (local.get $object)))))
        (local.set $count (i32.add (local.get $object) (i32.const 65536)))
        (i32.store (local.get $count) (i32.add (i32.load (local.get $count)) (i32.const 1)))
        (drop (call $commit (local.get $object)))
        (call $exit (i32.load (local.get $count)))))"#;

#[test]
fn the_exit_code_is_that_of_the_guest() {
    let place = Place::new();
    let module = place.file("exits.wat", EXITS);
    assert_eq!(place.run(&["sandbox", "run", module.to_str().unwrap()]).code, 7);
}

#[test]
fn rights_are_granted_enforced_and_revoked() {
    let place = Place::new();
    let module = place.file("counts.wat", COUNTS);
    let module = module.to_str().unwrap();
    let run =
        |arguments: &[&str]| place.run(&[&["sandbox", "run", module], arguments].concat()).code;
    assert_eq!((run(&[]), run(&[])), (1, 2));
    assert_eq!(run(&["--allow", "heap:snapshot"]), 104, "denied");
    assert_eq!(run(&["--app", "another"]), 1, "another application's heap is another one");
    assert_eq!(place.run(&["sandbox", "grant", "counts", "heap:none"]).code, 0);
    assert_eq!(run(&[]), 104);
    assert_eq!(place.run(&["sandbox", "revoke", "counts", "heap"]).code, 0);
    assert_eq!(run(&[]), 3);
    let list = place.run(&["sandbox", "list", "--json"]);
    assert!(list.out.contains(r#""object":"counts:heap""#), "{}", list.out);
}

#[test]
fn a_failed_grant_or_revoke_changes_nothing() {
    let place = Place::new();
    let (counts, exits) = (place.file("counts.wat", COUNTS), place.file("exits.wat", EXITS));
    let (counts, exits) = (counts.to_str().unwrap(), exits.to_str().unwrap());
    let fails = |code: i32, says: &str, arguments: &[&str]| {
        let before = contents(&place.store());
        place.fails(code, says, &[&["sandbox"], arguments].concat());
        assert!(contents(&place.store()) == before, "{arguments:?} changed the store");
    };
    let shared = ["grant", "reader", "g:words:snapshot"];
    fails(3, "has no object `g:words`", &shared);
    fails(3, "nowhere.wasm", &["run", "nowhere.wasm"]);
    fails(2, "does not set a variable", &["run", exits, "--env", "nothing"]);
    assert!(!place.store().exists());
    place.file("page.html", "<p>text");
    place.ok(&["parse", "page.html"]);
    fails(3, "has no object `g:words`", &shared);
    fails(3, "no application `reader`", &["revoke", "reader", "g:words"]);
    fails(3, "no application `reader`", &["revoke", "reader", "--all"]);

    // An application with an object, and an application that may use it.
    assert_eq!(place.run(&["sandbox", "run", counts]).code, 1);
    place.ok(&["sandbox", "grant", "reader", "counts:heap:snapshot", "--module", counts]);
    for id in ["reader", "other"] {
        let sound: &[&str] = &["--quota", "3", "--module", exits, "own:none", "counts:heap:read"];
        fails(3, "`g:words`", &[&["grant", id], sound, &["g:words:snapshot"]].concat());
        fails(3, "nowhere.wasm", &[&["grant", id], sound, &["--module", "nowhere.wasm"]].concat());
        fails(2, "hexadecimal digits", &["grant", id, "own:none", "--signer", "abc"]);
        fails(2, "cannot name", &["grant", id, "own:none", "a b:none"]);
    }
    fails(3, "no granted right to `g:words`", &["revoke", "reader", "counts:heap", "g:words"]);
    fails(3, "is not bound", &["revoke", "reader", "counts:heap", "--module", exits]);
    fails(2, "remove the application with `--all`", &["revoke", "reader"]);
    fails(4, "has objects: `counts:heap`", &["revoke", "counts", "--all"]);
    place.ok(&["sandbox", "revoke", "reader", "counts:heap", "--module", counts]);
}

#[test]
fn an_application_without_objects_is_removed_with_its_rights_and_its_key() {
    let place = Place::new();
    let (counts, exits) = (place.file("counts.wat", COUNTS), place.file("exits.wat", EXITS));
    let (counts, exits) = (counts.to_str().unwrap(), exits.to_str().unwrap());
    let listed = |what: &str| place.ok(&["sandbox", "list", "--json"]).contains(what);
    assert_eq!(place.run(&["sandbox", "run", counts]).code, 1);
    // A run makes its application, even if it makes no object or cannot be started.
    assert_eq!(place.run(&["sandbox", "run", exits]).code, 7);
    assert_eq!(place.run(&["sandbox", "run", exits, "--app", "held", "--dir", "."]).code, 6);
    for id in ["exits", "held"] {
        assert!(listed(&format!("\"{id}\"")));
        place.ok(&["sandbox", "revoke", id, "--all"]);
        assert!(!listed(&format!("\"{id}\"")));
    }
    place.ok(&["sandbox", "grant", "reader", "counts:heap:read", "own:none", "--module", counts]);
    place.ok(&["sandbox", "revoke", "reader", "--all"]);
    assert!(!listed("reader"));
    // The application is new again: any module may run as it, and it has a new key.
    assert_eq!(place.run(&["sandbox", "run", exits, "--app", "reader"]).code, 7);

    // An application with an object can be removed after its object.
    place.ok(&["rm", "counts:heap"]);
    place.ok(&["sandbox", "revoke", "counts", "--all"]);
    assert!(!listed("counts"));
    assert_eq!(
        place.run(&["sandbox", "run", counts]).code,
        1,
        "the guest did not start with a new object"
    );
    assert_eq!(place.run(&["sandbox", "run", counts]).code, 2);
    assert_eq!(place.run(&["check"]).code, 0);
}

/// A guest that reads its standard input to the end, then maps `heap` and exits like [`COUNTS`].
const WAITS: &str = r#"(module
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "evermap" "map" (func $map (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 20481)
    (data (i32.const 0x50000000) "heap")
    (func (export "_start") (local $object i32)
        (i32.store (i32.const 0x50000100) (i32.const 0x50000200))
        (i32.store (i32.const 0x50000104) (i32.const 16))
        (drop (call $read (i32.const 0) (i32.const 0x50000100) (i32.const 1) (i32.const 0x50000110)))
        (local.set $object (call $map (i32.const 0x50000000) (i32.const 4) (i32.const 65536) (i32.const 3)))
        (if (i32.lt_s (local.get $object) (i32.const 0))
            (then (call $exit (i32.sub (i32.const 100) (local.get $object)))))
        (call $exit (i32.const 0))))"#;

#[test]
fn a_guest_of_a_removed_application_cannot_make_an_object() {
    let place = Place::new();
    let module = place.file("waits.wat", WAITS);
    let (module, exits) = (module.to_str().unwrap(), place.file("exits.wat", EXITS));
    let mut waiting = place
        .command(&["sandbox", "run", module, "--timeout", "60"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(50);
    while !place.run(&["sandbox", "list"]).out.contains("waits") {
        assert!(std::time::Instant::now() < end, "the guest does not start");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    place.ok(&["sandbox", "revoke", "waits", "--all"]);
    // A new application with this name and another key.
    assert_eq!(place.run(&["sandbox", "run", exits.to_str().unwrap(), "--app", "waits"]).code, 7);
    drop(waiting.stdin.take());
    assert_eq!(waiting.wait().unwrap().code(), Some(104), "denied");
    assert_eq!(place.ok(&["ls"]), "");
}

#[test]
fn a_guest_object_cannot_be_renamed_and_other_verbs_show_it() {
    let place = Place::new();
    let module = place.file("counts.wat", COUNTS);
    let module = module.to_str().unwrap();
    let run = || place.run(&["sandbox", "run", module]).code;
    assert_eq!(run(), 1);
    place.fails(2, "cannot rename", &["mv", "counts:heap", "kept"]);
    assert_eq!(run(), 2, "the guest did not find its object");
    let check = place.run(&["check"]);
    assert!(check.code == 0 && !check.out.contains("leftover"), "{check:?}");
    let info = place.info("counts:heap");
    assert_eq!(info["name"], "counts:heap");
    assert!(info["object"]["file_bytes"].as_u64().unwrap() > 0, "{info}");
    assert!(place.ok(&["info", "counts:heap"]).contains("counts:heap"));
    assert!(place.ok(&["map", "counts:heap", "--json"]).contains("counts:heap"));
    place.ok(&["rm", "counts:heap"]);
    assert_eq!(run(), 1);
}

#[test]
fn an_application_opens_its_heap_in_a_backup_and_after_a_restore() {
    let place = Place::new();
    let module = place.file("counts.wat", COUNTS);
    let module = module.to_str().unwrap();
    let run = || place.run(&["sandbox", "run", module]).code;
    assert_eq!(run(), 1);
    let copy = place.path("copy");
    let copy = copy.to_str().unwrap();
    assert_eq!(place.run(&["backup", copy]).code, 0);
    assert_eq!((run(), run()), (2, 3));
    let restored = place.run(&["restore", copy, "--force"]);
    assert_eq!(restored.code, 0, "{restored:?}");
    assert_eq!(run(), 2);
    let of_the_copy = place.bare(&["--store", copy, "sandbox", "run", module]).status().unwrap();
    assert_eq!(of_the_copy.code(), Some(2));
}

#[test]
fn a_bound_module_excludes_others() {
    let place = Place::new();
    let (counts, exits) = (place.file("counts.wat", COUNTS), place.file("exits.wat", EXITS));
    let (counts, exits) = (counts.to_str().unwrap(), exits.to_str().unwrap());
    let bound = place.run(&["sandbox", "grant", "app", "--module", counts]);
    assert_eq!(bound.code, 0, "{bound:?}");
    assert_eq!(place.run(&["sandbox", "run", counts, "--app", "app"]).code, 1);
    let refused = place.run(&["sandbox", "run", exits, "--app", "app"]);
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.err.contains("is not bound to application `app`"), "{}", refused.err);

    // Removing the last bound module does not admit others.
    assert_eq!(place.run(&["sandbox", "revoke", "app", "--module", counts]).code, 0);
    assert_eq!(place.run(&["sandbox", "run", counts, "--app", "app"]).code, 6);
    assert_eq!(place.run(&["sandbox", "grant", "app", "--any-module"]).code, 0);
    assert_eq!(place.run(&["sandbox", "run", exits, "--app", "app"]).code, 7);
}

/// A guest that sleeps for an hour of the monotonic clock.
const SLEEPS: &str = r#"(module
    (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (func (export "_start")
        (i32.store (i32.const 16) (i32.const 1))
        (i64.store (i32.const 24) (i64.const 3600000000000))
        (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))))"#;

#[test]
fn a_sleeping_guest_is_ended_at_its_timeout() {
    let place = Place::new();
    let module = place.file("sleeps.wat", SLEEPS);
    let timed = place.run(&["sandbox", "run", module.to_str().unwrap(), "--timeout", "0.1"]);
    assert_eq!(timed.code, 134, "{timed:?}");
    assert!(timed.err.contains("--timeout"), "{}", timed.err);
}

#[test]
fn errors_are_reported_in_one_line_with_a_remedy() {
    let place = Place::new();
    let module = place.file("spins.wat", r#"(module (func (export "_start") (loop $l (br $l))))"#);
    let module = module.to_str().unwrap();
    let timed = place.run(&["sandbox", "run", module, "--timeout", "0.1"]);
    assert_eq!(timed.code, 134, "{timed:?}");
    assert!(timed.err.contains("--timeout"), "{}", timed.err);
    let burnt = place.run(&["sandbox", "run", module, "--fuel", "1000"]);
    assert!(burnt.code == 134 && burnt.err.contains("--fuel"), "{burnt:?}");
    let missing = place.run(&["sandbox", "run", "nowhere.wasm"]);
    assert!(missing.code == 3 && missing.err.contains("nowhere.wasm"), "{missing:?}");
    let text = place.file("text.wasm", "no module");
    let text = place.run(&["sandbox", "run", text.to_str().unwrap()]);
    assert!(text.code == 125 && text.err.contains("text.wasm"), "{text:?}");
    let list = place.run(&["sandbox", "list"]);
    assert!(!list.out.contains("text"), "an application that never ran is listed: {}", list.out);
    let directory = place.path("").to_str().unwrap().to_string();
    let held = place.run(&["sandbox", "run", module, "--dir", &directory]);
    assert!(held.code == 6 && held.err.contains("preopen another directory"), "{held:?}");
    let level = place.run(&["sandbox", "grant", "app", "heap:all"]);
    assert!(level.code == 2 && level.err.contains("snapshot"), "{level:?}");
    let nobody = place.run(&["sandbox", "revoke", "nobody", "heap"]);
    assert!(nobody.code == 3 && nobody.err.contains("nobody"), "{nobody:?}");
    for lines in [&timed.err, &missing.err, &text.err, &held.err, &nobody.err] {
        assert_eq!(lines.trim_end().lines().count(), 1, "{lines}");
    }
}

/// Runs a guest that grows a memory or a table. A limit on the command's own memory protects the
/// machine. Returns the result and the peak memory.
fn grown(place: &Place, name: &str, text: &str) -> (common::Ran, u64) {
    const GIB: u64 = 1 << 30;
    let module = place.file(name, text);
    let mut command = place.command(&["sandbox", "run"]);
    command.arg(module).args(["--memory", "1300", "--timeout", "60"]);
    // Limits private writable memory. The 4 GiB of reserved addresses do not count.
    let bound = rustix::process::Rlimit { current: Some(3 * GIB), maximum: Some(3 * GIB) };
    // SAFETY: the closure makes one system call.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, move || {
            Ok(rustix::process::setrlimit(rustix::process::Resource::Data, bound)?)
        });
    }
    let (out, err) = (place.path("out"), place.path("err"));
    command.stdout(std::fs::File::create(&out).unwrap());
    command.stderr(std::fs::File::create(&err).unwrap());
    let mut child = command.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut most_bytes = 0;
    let ended = loop {
        // The peak so far. The file is empty after the process has ended.
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let most =
            status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
        most_bytes = most.map_or(most_bytes, |kib| kib.parse::<u64>().unwrap() << 10);
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    };
    let code = ended.code().unwrap_or(-1);
    let text = |path| std::fs::read_to_string(path).unwrap();
    (common::Ran { code, out: text(out), err: text(err) }, most_bytes)
}

#[test]
fn a_guest_cannot_grow_beyond_its_memory_limit_and_the_error_names_it() {
    const MOST_BYTES: u64 = 1_400_000_000;
    let place = Place::new();
    let module = |body: &str| {
        format!(
            r#"(module (memory (export "memory") 20496) (table $t 1 funcref) (memory $second 1)
                (func $deeper (call $deeper) (call $deeper))
                (func (export "_start") (local $at i32) {body} unreachable))"#
        )
    };
    let until_refused =
        |growth: &str| module(&format!("(loop $l (br_if $l (i32.ne (i32.const -1) {growth})))"));
    for (name, text, needle) in [
        ("table.wat", until_refused("(table.grow $t (ref.null func) (i32.const 100000))"), "--memory"),
        ("memory.wat", until_refused("(memory.grow (i32.const 1))"), "--memory"),
        ("second.wat", until_refused("(memory.grow $second (i32.const 1))"), "--memory"),
        (
            "touched.wat",
            module(
                "(loop $l (br_if $l (i32.ne (i32.const -1) (memory.grow (i32.const 1)))))
                 (memory.fill (i32.const 0) (i32.const 1) (i32.mul (memory.size) (i32.const 65536)))",
            ),
            "--memory",
        ),
        ("recursion.wat", module("(call $deeper)"), "call stack exhausted"),
    ] {
        let (ran, most_bytes) = grown(&place, name, &text);
        assert_eq!(ran.code, 134, "{name}: {ran:?}");
        assert!(ran.err.contains(needle), "{name}: {ran:?}");
        assert!(most_bytes <= MOST_BYTES, "{name} had {most_bytes} bytes");
    }
}

#[test]
fn a_memory_limit_below_the_initial_size_is_refused_with_the_needed_size() {
    let place = Place::new();
    let module = place.file("counts.wat", COUNTS);
    let module = module.to_str().unwrap();
    let refused = place.run(&["sandbox", "run", module, "--memory", "1280"]);
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(refused.err.contains("at least 1281 MiB"), "{}", refused.err);
    assert_eq!(place.run(&["sandbox", "run", module, "--memory", "1281"]).code, 1);
    let small = place.file("exits.wat", EXITS);
    let small = ["sandbox", "run", small.to_str().unwrap(), "--memory", "1"];
    assert_eq!(place.run(&small).code, 7, "a guest without objects needs no window");
}

#[test]
fn a_module_is_a_regular_file_of_limited_size_or_standard_input() {
    use std::io::Write;
    let place = Place::new();
    let fifo = std::ffi::CString::new(place.path("fifo").to_str().unwrap()).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let huge = std::fs::File::create(place.path("huge.wasm")).unwrap();
    huge.set_len((256 << 20) + 1).unwrap();
    for (name, why) in [
        ("fifo", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        ("/dev/full", "not a regular file"),
        (".", "not a regular file"),
        ("huge.wasm", "256 MiB"),
    ] {
        // As a module to run, as a module to bind, and as a signature.
        for arguments in [
            &["sandbox", "run", name, "--app", "a"][..],
            &["sandbox", "grant", "a", "--module", name],
        ] {
            let refused = place.run(arguments);
            assert!(refused.code != 0 && refused.err.contains(why), "{arguments:?}: {refused:?}");
        }
    }
    let module = place.file("exits.wat", EXITS);
    let signed = ["sandbox", "run", module.to_str().unwrap(), "--signature", "fifo"];
    assert!(place.run(&signed).err.contains("not a regular file"));

    let mut piped = place
        .command(&["sandbox", "run", "-", "--app", "a"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    piped.stdin.take().unwrap().write_all(EXITS.as_bytes()).unwrap();
    assert_eq!(piped.wait().unwrap().code(), Some(7));
    let nameless = place.run(&["sandbox", "run", "-"]);
    assert!(nameless.code == 2 && nameless.err.contains("--app"), "{nameless:?}");
}

#[test]
fn a_bound_module_excludes_others_if_the_table_is_removed() {
    let place = Place::new();
    let (counts, exits) = (place.file("counts.wat", COUNTS), place.file("exits.wat", EXITS));
    let (counts, exits) = (counts.to_str().unwrap(), exits.to_str().unwrap());
    assert_eq!(place.run(&["sandbox", "grant", "app", "--module", counts]).code, 0);
    let table = place.store().join("sandbox.access");
    let whole = std::fs::read(&table).unwrap();
    std::fs::remove_file(&table).unwrap();
    for module in [exits, counts] {
        let refused = place.run(&["sandbox", "run", module, "--app", "app"]);
        assert!(refused.code == 5 && refused.err.contains("from a backup"), "{refused:?}");
    }
    for verb in [&["sandbox", "list"][..], &["sandbox", "grant", "app", "--any-module"]] {
        assert_eq!(place.run(verb).code, 5, "{verb:?}");
    }
    std::fs::write(&table, whole).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    std::fs::set_permissions(&table, mode(0o622)).unwrap();
    let refused = place.run(&["sandbox", "run", counts, "--app", "app"]);
    assert!(refused.code == 6 && refused.err.contains("chmod go-w"), "{refused:?}");
    std::fs::set_permissions(&table, mode(0o600)).unwrap();
    assert_eq!(place.run(&["sandbox", "run", counts, "--app", "app"]).code, 1);
}
