//! Calls the five imports with values at which arithmetic fails and with random ones. Each call
//! must return an address, a count or a documented code, write nothing outside of the given buffer,
//! and leave the guest's heap usable.
//!
//! A guest copies the zones around the edges of its memory and of the window, and compares them
//! after each call.
#![allow(clippy::unwrap_used)]

mod common;

use std::ops::Range;

use common::{DATA, Fixture, Machine, key_of, module};
use evermap_wasm::{Application, Code, GuestOptions, Module, SandboxOptions};
use proptest::prelude::*;

const SNAPSHOT: u32 = 1;
const WRITE: u32 = 3;

/// First address of the window, the object `heap`, the first address after the window, and the
/// length of the memory of a guest that has not grown.
const WINDOW: u32 = 0x1000_0000;
/// The object's first chunk begins at a multiple of 64 KiB, with its metadata as close to it as
/// possible.
const HEAP: u32 = WINDOW + 0x4000;
const BEHIND_WINDOW: u32 = 0x5000_0000;
const MEMORY_BYTES: u32 = 20482 << 16;

/// Bytes that `stat` returns for an object with one region.
const STAT_BYTES: u32 = 64 + 48;
/// Longer names are refused without reading them.
const NAME_BYTES_MAX: u32 = 129;

const ADDRESSES: &[u32] = &[
    0,
    1,
    3,
    4,
    0xfff,
    0x1000,
    0x1_0000,
    WINDOW - 0x1000,
    WINDOW - STAT_BYTES - 1,
    WINDOW - STAT_BYTES,
    WINDOW - STAT_BYTES + 1,
    WINDOW - 4,
    WINDOW - 1,
    WINDOW,
    WINDOW + 1,
    WINDOW + 0x1000,
    HEAP - 1,
    HEAP,
    HEAP + 1,
    HEAP + DATA,
    BEHIND_WINDOW - 0x1000,
    BEHIND_WINDOW - 1,
    BEHIND_WINDOW,
    BEHIND_WINDOW + 1,
    BEHIND_WINDOW + 0x1000,
    MEMORY_BYTES - 0x1000,
    MEMORY_BYTES - STAT_BYTES,
    MEMORY_BYTES - STAT_BYTES + 1,
    MEMORY_BYTES - 4,
    MEMORY_BYTES - 1,
    MEMORY_BYTES,
    MEMORY_BYTES + 1,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_f000,
    u32::MAX - STAT_BYTES,
    u32::MAX - STAT_BYTES + 1,
    u32::MAX - 3,
    u32::MAX,
];

const LENGTHS: &[u32] = &[
    0,
    1,
    3,
    4,
    5,
    64,
    65,
    STAT_BYTES - 1,
    STAT_BYTES,
    STAT_BYTES + 1,
    NAME_BYTES_MAX,
    NAME_BYTES_MAX + 1,
    0xfff,
    0x1000,
    0x1_0000,
    WINDOW,
    BEHIND_WINDOW,
    MEMORY_BYTES,
    0x7fff_ffff,
    0x8000_0000,
    u32::MAX - 0xfff,
    u32::MAX,
];

const LEVELS: &[u32] = &[0, 1, 2, 3, 4, 0xff, 0x100, 0x8000_0003, u32::MAX];

/// Zones that the guest compares: address and length. The last one exists only after
/// `grow_to_the_end`.
const ZONES: [(u32, u32); 6] = [
    (0, 0x8000),
    (WINDOW - 0x8000, 0x8000),
    (WINDOW, 0x8000),
    (BEHIND_WINDOW - 0x8000, 0x8000),
    (BEHIND_WINDOW, 0x2_0000),
    (u32::MAX - 0x7fff, 0x8000),
];
/// Address of the copies, in unused memory.
const COPIES: u32 = 0x0100_0000;
const COPIES_STEP: u32 = 0x10_0000;

const BODY: &str = r#"
    (func (export "copy") (param i32 i32 i32)
        (memory.copy (local.get 0) (local.get 1) (local.get 2)))
    ;; Offset of the first difference of two ranges, or their length.
    (func (export "differ_at") (param $a i32) (param $b i32) (param $bytes i32) (result i32)
        (local $at i32)
        (block $out (loop $next
            (br_if $out (i32.eq (local.get $at) (local.get $bytes)))
            (br_if $out (i32.ne
                (i32.load8_u (i32.add (local.get $a) (local.get $at)))
                (i32.load8_u (i32.add (local.get $b) (local.get $at)))))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (br $next)))
        (local.get $at))
    (func (export "grow_to_the_end") (result i32)
        (memory.grow (i32.sub (i32.const 65536) (memory.size))))"#;

fn refused(code: Code) -> i32 {
    -(code as i32)
}

/// A store with guests of one application, which has a quota of 16 MiB.
struct Setup {
    fixture: Fixture,
    application: Application,
    module: Module,
}

impl Setup {
    fn new() -> Setup {
        let fixture = Fixture::in_memory(SandboxOptions::new());
        let application = fixture.application("app");
        fixture.sandbox.access().set_quota(application.id(), 16 << 20).unwrap();
        let module = fixture.sandbox.compile("corners", module(BODY).as_bytes()).unwrap();
        let setup = Setup { fixture, application, module };
        setup.start().assert_heap_works(1);
        setup
    }

    fn start(&self) -> Prober {
        let options = GuestOptions::new();
        let guest = self.fixture.sandbox.start(&self.module, &self.application, &options);
        Prober { machine: Machine(guest.unwrap()), memory_bytes: u64::from(MEMORY_BYTES) }
    }
}

/// A guest that calls the imports and checks its memory.
struct Prober {
    machine: Machine,
    memory_bytes: u64,
}

impl Prober {
    /// Grows the guest's memory to 4 GiB.
    fn grow_to_the_end(&mut self) {
        let before: i32 = self.machine.call("grow_to_the_end", ()).unwrap();
        assert_eq!(before, 20482);
        self.memory_bytes = 1 << 32;
    }

    fn zones(&self) -> impl Iterator<Item = (u32, u32, u32)> + use<> {
        let count = if self.memory_bytes == 1 << 32 { ZONES.len() } else { ZONES.len() - 1 };
        let copy = (0..).map(|index| COPIES + index * COPIES_STEP);
        ZONES.into_iter().zip(copy).take(count).map(|((start, bytes), copy)| (start, bytes, copy))
    }

    fn copy_zones(&mut self) {
        for (start, bytes, copy) in self.zones() {
            self.machine.call::<_, ()>("copy", (copy, start, bytes)).unwrap();
        }
    }

    /// Asserts that the zones equal their copies, except in `written`.
    fn assert_unchanged_except(&mut self, written: Range<u64>, window: bool, what: &str) {
        for (start, bytes, copy) in self.zones() {
            if !window && (WINDOW..BEHIND_WINDOW).contains(&start) {
                continue;
            }
            let (first, end) = (u64::from(start), u64::from(start) + u64::from(bytes));
            let before = first..end.min(written.start).max(first);
            let after = end.min(written.end).max(first)..end;
            for part in [before, after] {
                let (at, copy_at) = (part.start as u32, copy + (part.start - first) as u32);
                let length = (part.end - part.start) as u32;
                let differ: u32 = self.machine.call("differ_at", (at, copy_at, length)).unwrap();
                assert_eq!(differ, length, "{what}: {:#x} changed", at + differ);
            }
        }
    }

    /// Returns true if the host may copy to or from this range.
    fn is_own(&self, address: u32, length: u32) -> bool {
        let (start, end) = (u64::from(address), u64::from(address) + u64::from(length));
        let apart = end <= u64::from(WINDOW) || start >= u64::from(BEHIND_WINDOW);
        end <= self.memory_bytes && apart
    }

    /// Calls `stat` or `last_fault`, which return `returned_bytes` and write at most as many bytes.
    fn ask(
        &mut self,
        what: &str,
        returned_bytes: u32,
        out: u32,
        out_bytes: u32,
        call: impl FnOnce(&mut Machine) -> i32,
    ) {
        self.copy_zones();
        let shown_bytes = returned_bytes.min(out_bytes);
        let own = self.is_own(out, shown_bytes);
        let expected = if own { returned_bytes as i32 } else { refused(Code::InvalidArgument) };
        let told = call(&mut self.machine);
        let what = format!("{what}({out:#x}, {out_bytes:#x})");
        assert_eq!(told, expected, "{what}");
        let start = u64::from(out);
        let written = if own { start..start + u64::from(shown_bytes) } else { 0..0 };
        self.assert_unchanged_except(written, true, &what);
    }

    fn stat(&mut self, base: u32, returned_bytes: u32, out: u32, out_bytes: u32) {
        self.ask("stat", returned_bytes, out, out_bytes, |machine| {
            machine.call("stat", (base, out, out_bytes)).unwrap()
        });
    }

    fn last_fault(&mut self, out: u32, out_bytes: u32) {
        let returned_bytes: u32 =
            self.machine.call("last_fault", (BEHIND_WINDOW + 0x200, 0)).unwrap();
        self.ask("last_fault", returned_bytes, out, out_bytes, |machine| {
            machine.call("last_fault", (out, out_bytes)).unwrap()
        });
    }

    /// Makes a call that must not write outside of the window. Returns its result.
    fn call_and_check(&mut self, what: &str, call: impl FnOnce(&mut Machine) -> i32) -> i32 {
        self.copy_zones();
        let result = call(&mut self.machine);
        self.assert_unchanged_except(0..0, false, what);
        assert!(is_documented(result), "{what} returned {result}");
        result
    }

    /// Calls `map` with a name at this address, and asserts the expected error.
    fn map_named(&mut self, name: u32, name_bytes: u32, bytes: u32, level: u32) {
        let what = format!("map({name:#x}, {name_bytes:#x}, {bytes:#x}, {level:#x})");
        let result = self.call_and_check(&what, |machine| {
            machine.call("map_at", (name, name_bytes, bytes, level)).unwrap()
        });
        let expected = match () {
            () if !(1..=3).contains(&level) => Code::InvalidArgument,
            () if name_bytes > NAME_BYTES_MAX => Code::InvalidName,
            () if !self.is_own(name, name_bytes) => Code::InvalidArgument,
            // A part of `heap` or `other` can be a valid name.
            () if (BEHIND_WINDOW..BEHIND_WINDOW + 0x200).contains(&name) => return,
            () => Code::InvalidName,
        };
        assert_eq!(result, refused(expected), "{what}");
    }

    /// Uses the heap as a program does: commits a value and finds it in the next mapping.
    fn assert_heap_works(&mut self, value: u32) {
        let machine = &mut self.machine;
        // Another test call can have overwritten the name.
        machine.put(BEHIND_WINDOW, b"heap");
        let base = machine.map_ok(65536, WRITE);
        assert_eq!(base, HEAP);
        machine.store(base + DATA, value);
        let committed = machine.commit(base);
        assert!([0, 1].contains(&committed), "{committed}: {}", machine.message());
        assert_eq!(machine.unmap(base), 0);
        assert_eq!(machine.load(base + DATA), 0);
        assert_eq!(machine.map_ok(0, WRITE), base);
        assert_eq!(machine.load(base + DATA), value);
    }
}

/// Returns true for an address, a count, or a code that does not mean trouble in the host.
fn is_documented(result: i32) -> bool {
    let trouble = [Code::Damaged, Code::Io, Code::DurabilityUnknown, Code::Dead];
    result > -17 && !trouble.map(refused).contains(&result)
}

#[test]
fn imports_write_only_into_the_given_buffer() {
    let setup = Setup::new();
    for whole in [false, true] {
        let mut prober = setup.start();
        if whole {
            prober.grow_to_the_end();
        }
        let base = prober.machine.map_ok(65536, WRITE);
        for &out in ADDRESSES {
            for &out_bytes in LENGTHS {
                prober.stat(base, STAT_BYTES, out, out_bytes);
                prober.last_fault(out, out_bytes);
            }
        }
        prober.assert_heap_works(u32::from(whole) + 1);
    }
    setup.fixture.assert_sound();
}

#[test]
fn names_are_read_only_from_the_guests_own_memory() {
    let setup = Setup::new();
    for whole in [false, true] {
        let mut prober = setup.start();
        if whole {
            prober.grow_to_the_end();
        }
        prober.machine.map_ok(0, WRITE);
        for &name in ADDRESSES {
            for &name_bytes in LENGTHS {
                for level in [0, SNAPSHOT, WRITE] {
                    prober.map_named(name, name_bytes, 0, level);
                }
            }
        }
        prober.assert_heap_works(3);
    }
    setup.fixture.assert_sound();
}

#[test]
fn every_size_and_level_succeeds_or_returns_the_right_code() {
    let setup = Setup::new();
    for &bytes in LENGTHS {
        for &level in LEVELS {
            let mut prober = setup.start();
            let result = prober
                .call_and_check("map", |machine| machine.call("map_heap", (bytes, level)).unwrap());
            let expected: &[i32] = match level {
                // Its address, or `QUOTA` above the quota of 16 MiB. The first call creates the
                // object.
                3 if bytes > 16 << 20 => &[refused(Code::Quota)],
                3 => &[HEAP as i32],
                1 | 2 => &[HEAP as i32, refused(Code::NotFound)],
                _ => &[refused(Code::InvalidArgument)],
            };
            assert!(expected.contains(&result), "{bytes:#x} at level {level:#x}: {result}");
            if level == WRITE {
                prober.assert_heap_works(bytes ^ level);
                let base = prober.machine.map_ok(0, WRITE);
                for other in [1, 2] {
                    assert_eq!(prober.machine.map(bytes, other), refused(Code::Busy));
                }
                assert_eq!(prober.machine.unmap(base), 0);
            }
        }
    }
    setup.fixture.assert_sound();
}

#[test]
fn only_the_address_of_a_superblock_names_an_object() {
    let setup = Setup::new();
    let mut prober = setup.start();
    let base = prober.machine.map_ok(0, WRITE);
    for &address in ADDRESSES.iter().filter(|&&address| address != base) {
        for function in ["unmap", "commit"] {
            let result =
                prober.call_and_check(function, |machine| machine.call(function, address).unwrap());
            assert_eq!(result, refused(Code::NotMapped), "{function} {address:#x}");
        }
        for &out in ADDRESSES {
            let told: i32 = prober.machine.call("stat", (address, out, u32::MAX)).unwrap();
            assert_eq!(told, refused(Code::NotMapped), "stat {address:#x}");
        }
    }
    prober.assert_heap_works(9);
    setup.fixture.assert_sound();
}

/// One random call.
#[derive(Clone, Copy, Debug)]
enum Call {
    Map { name: u32, name_bytes: u32, bytes: u32, level: u32 },
    MapHeap { bytes: u32, level: u32 },
    Unmap(u32),
    Commit(u32),
    Stat { address: u32, out: u32, out_bytes: u32 },
    LastFault { out: u32, out_bytes: u32 },
    Store(u32),
}

/// A number of the table, one close to it, or any number.
fn number(corners: &'static [u32]) -> impl Strategy<Value = u32> + Clone {
    let corner = prop::sample::select(corners);
    let close = (corner.clone(), 0..17u32).prop_map(|(n, by)| n.wrapping_add(by).wrapping_sub(8));
    prop_oneof![corner, close, any::<u32>()]
}

fn level() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 1..4u32, 1 => any::<u32>()]
}

fn object() -> impl Strategy<Value = u32> {
    prop_oneof![Just(HEAP), number(ADDRESSES)]
}

fn call() -> impl Strategy<Value = Call> {
    let (address, length) = (number(ADDRESSES), number(LENGTHS));
    prop_oneof![
        (address.clone(), length.clone(), length.clone(), level()).prop_map(
            |(name, name_bytes, bytes, level)| Call::Map { name, name_bytes, bytes, level }
        ),
        (length.clone(), level()).prop_map(|(bytes, level)| Call::MapHeap { bytes, level }),
        object().prop_map(Call::Unmap),
        object().prop_map(Call::Commit),
        (object(), address.clone(), length.clone())
            .prop_map(|(address, out, out_bytes)| Call::Stat { address, out, out_bytes }),
        (address, length).prop_map(|(out, out_bytes)| Call::LastFault { out, out_bytes }),
        (0..0x10_0000u32).prop_map(|offset| Call::Store(HEAP + DATA + (offset & !3))),
    ]
}

fn make(prober: &mut Prober, call: Call) {
    let what = format!("{call:x?}");
    match call {
        Call::Map { name, name_bytes, bytes, level } => {
            let parameters = (name, name_bytes, bytes, level);
            prober.call_and_check(&what, |machine| machine.call("map_at", parameters).unwrap());
        }
        Call::MapHeap { bytes, level } => {
            prober
                .call_and_check(&what, |machine| machine.call("map_heap", (bytes, level)).unwrap());
        }
        Call::Unmap(address) => {
            prober.call_and_check(&what, |machine| machine.call("unmap", address).unwrap());
        }
        Call::Commit(address) => {
            prober.call_and_check(&what, |machine| machine.call("commit", address).unwrap());
        }
        Call::Stat { address, out, out_bytes } => {
            let told: i32 =
                prober.machine.call("stat", (address, BEHIND_WINDOW + 0x200, 0)).unwrap();
            if told > 0 {
                prober.stat(address, told as u32, out, out_bytes);
            } else {
                assert_eq!(told, refused(Code::NotMapped), "{what}");
            }
        }
        Call::LastFault { out, out_bytes } => prober.last_fault(out, out_bytes),
        Call::Store(address) => prober.machine.store(address, address),
    }
}

#[test]
fn random_calls_of_a_guest_harm_neither_host_nor_other_guests() {
    let setup = Setup::new();
    let mut bystander = Machine({
        let other = setup.fixture.sandbox.application("other".parse().unwrap(), key_of("other"));
        let options = GuestOptions::new();
        setup.fixture.sandbox.start(&setup.module, &other.unwrap(), &options).unwrap()
    });
    let own = bystander.map_ok(65536, WRITE);
    bystander.store(own + DATA, 77);
    assert_eq!(bystander.commit(own), 1);
    // Failures are in the message, not in a regression file.
    let settings = ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() };
    proptest!(settings, |(calls in prop::collection::vec(call(), 1..24), whole in any::<bool>())| {
        let mut prober = setup.start();
        if whole {
            prober.grow_to_the_end();
        }
        calls.into_iter().for_each(|call| make(&mut prober, call));
        // Dropping the guest unmaps its objects.
        drop(prober);
        setup.start().assert_heap_works(1);
    });
    assert_eq!(bystander.load(own + DATA), 77);
    assert_eq!(bystander.commit(own), 0, "nothing was stored there");
    drop(bystander);
    setup.fixture.assert_sound();
}
