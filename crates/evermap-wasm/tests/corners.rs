//! The five imports, called with the numbers at which arithmetic goes wrong and with random ones: what
//! comes back is an address, a count or a documented code, nothing is written outside of the buffer
//! that was named, and the guest's heap works afterwards as before.
//!
//! A guest keeps a copy of the zones around the edges of its memory and of the window, and
//! compares them after each call.
#![allow(clippy::unwrap_used)]

mod common;

use std::ops::Range;

use common::{DATA, Fixture, Machine, key_of, module};
use evermap_wasm::{Application, Code, GuestOptions, Module, SandboxOptions};
use proptest::prelude::*;

const SNAPSHOT: u32 = 1;
const WRITE: u32 = 3;

/// First address of the window, first one behind it, and the first one behind the memory of a guest that did
/// not ask for more.
const WINDOW: u32 = 0x1000_0000;
/// The object `heap`: its first chunk begins at a multiple of 64 KiB, its metadata as late as they can.
const HEAP: u32 = WINDOW + 0x4000;
const BEHIND_WINDOW: u32 = 0x5000_0000;
const MEMORY_BYTES: u32 = 20482 << 16;

/// The bytes of what `stat` tells of an object with one region.
const STAT_BYTES: u32 = 64 + 48;
/// No name that is longer is looked at.
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

/// What the guest compares: where a zone begins, and its bytes. The last one is there only after `grow_to_the_end`.
const ZONES: [(u32, u32); 6] = [
    (0, 0x8000),
    (WINDOW - 0x8000, 0x8000),
    (WINDOW, 0x8000),
    (BEHIND_WINDOW - 0x8000, 0x8000),
    (BEHIND_WINDOW, 0x2_0000),
    (u32::MAX - 0x7fff, 0x8000),
];
/// Where it keeps them: in the middle of nowhere.
const KEPT: u32 = 0x0100_0000;
const KEPT_STEP: u32 = 0x10_0000;

const BODY: &str = r#"
    (func (export "copy") (param i32 i32 i32)
        (memory.copy (local.get 0) (local.get 1) (local.get 2)))
    ;; Where two ranges differ first; their length if they do not.
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

/// A store with an application that may have 16 MiB, and guests of it.
struct Ground {
    fixture: Fixture,
    application: Application,
    module: Module,
}

impl Ground {
    fn new() -> Ground {
        let fixture = Fixture::in_memory(SandboxOptions::new());
        let application = fixture.application("app");
        fixture.sandbox.access().set_quota(application.id(), 16 << 20).unwrap();
        let module = fixture.sandbox.compile("corners", module(BODY).as_bytes()).unwrap();
        let ground = Ground { fixture, application, module };
        ground.start().assert_heap_works(1);
        ground
    }

    fn start(&self) -> Asker {
        let options = GuestOptions::new();
        let guest = self.fixture.sandbox.start(&self.module, &self.application, &options);
        Asker { machine: Machine(guest.unwrap()), memory_bytes: u64::from(MEMORY_BYTES) }
    }
}

/// A guest that calls, and watches its memory.
struct Asker {
    machine: Machine,
    memory_bytes: u64,
}

impl Asker {
    /// Gives the guest all the memory that there is: 4 GiB.
    fn grow_to_the_end(&mut self) {
        let before: i32 = self.machine.call("grow_to_the_end", ()).unwrap();
        assert_eq!(before, 20482);
        self.memory_bytes = 1 << 32;
    }

    fn zones(&self) -> impl Iterator<Item = (u32, u32, u32)> + use<> {
        let count = if self.memory_bytes == 1 << 32 { ZONES.len() } else { ZONES.len() - 1 };
        let kept = (0..).map(|index| KEPT + index * KEPT_STEP);
        ZONES.into_iter().zip(kept).take(count).map(|((start, bytes), kept)| (start, bytes, kept))
    }

    fn keep_zones(&mut self) {
        for (start, bytes, kept) in self.zones() {
            self.machine.call::<_, ()>("copy", (kept, start, bytes)).unwrap();
        }
    }

    /// Whether the zones are as they were kept, but for the bytes of `written`.
    fn assert_untouched_but(&mut self, written: Range<u64>, window: bool, what: &str) {
        for (start, bytes, kept) in self.zones() {
            if !window && (WINDOW..BEHIND_WINDOW).contains(&start) {
                continue;
            }
            let (first, end) = (u64::from(start), u64::from(start) + u64::from(bytes));
            let before = first..end.min(written.start).max(first);
            let after = end.min(written.end).max(first)..end;
            for part in [before, after] {
                let (at, kept_at) = (part.start as u32, kept + (part.start - first) as u32);
                let length = (part.end - part.start) as u32;
                let differ: u32 = self.machine.call("differ_at", (at, kept_at, length)).unwrap();
                assert_eq!(differ, length, "{what}: {:#x} was written to", at + differ);
            }
        }
    }

    /// May a host copy to there, or from there?
    fn is_own(&self, address: u32, length: u32) -> bool {
        let (start, end) = (u64::from(address), u64::from(address) + u64::from(length));
        let apart = end <= u64::from(WINDOW) || start >= u64::from(BEHIND_WINDOW);
        end <= self.memory_bytes && apart
    }

    /// `stat` or `last_fault`, which write `told_bytes` or less.
    fn ask(
        &mut self,
        what: &str,
        told_bytes: u32,
        out: u32,
        out_bytes: u32,
        call: impl FnOnce(&mut Machine) -> i32,
    ) {
        self.keep_zones();
        let shown_bytes = told_bytes.min(out_bytes);
        let own = self.is_own(out, shown_bytes);
        let expected = if own { told_bytes as i32 } else { refused(Code::InvalidArgument) };
        let told = call(&mut self.machine);
        let what = format!("{what}({out:#x}, {out_bytes:#x})");
        assert_eq!(told, expected, "{what}");
        let start = u64::from(out);
        let written = if own { start..start + u64::from(shown_bytes) } else { 0..0 };
        self.assert_untouched_but(written, true, &what);
    }

    fn stat(&mut self, base: u32, told_bytes: u32, out: u32, out_bytes: u32) {
        self.ask("stat", told_bytes, out, out_bytes, |machine| {
            machine.call("stat", (base, out, out_bytes)).unwrap()
        });
    }

    fn last_fault(&mut self, out: u32, out_bytes: u32) {
        let told_bytes: u32 = self.machine.call("last_fault", (BEHIND_WINDOW + 0x200, 0)).unwrap();
        self.ask("last_fault", told_bytes, out, out_bytes, |machine| {
            machine.call("last_fault", (out, out_bytes)).unwrap()
        });
    }

    /// A call that writes nothing outside of the window: its result.
    fn call_beside(&mut self, what: &str, call: impl FnOnce(&mut Machine) -> i32) -> i32 {
        self.keep_zones();
        let result = call(&mut self.machine);
        self.assert_untouched_but(0..0, false, what);
        assert!(is_documented(result), "{what} gave {result}");
        result
    }

    /// Maps what is named there, and says whether the answer is the right one.
    fn map_named(&mut self, name: u32, name_bytes: u32, bytes: u32, level: u32) {
        let what = format!("map({name:#x}, {name_bytes:#x}, {bytes:#x}, {level:#x})");
        let result = self.call_beside(&what, |machine| {
            machine.call("map_at", (name, name_bytes, bytes, level)).unwrap()
        });
        let expected = match () {
            () if !(1..=3).contains(&level) => Code::InvalidArgument,
            () if name_bytes > NAME_BYTES_MAX => Code::InvalidName,
            () if !self.is_own(name, name_bytes) => Code::InvalidArgument,
            // A piece of `heap` or `other`: a name like any other.
            () if (BEHIND_WINDOW..BEHIND_WINDOW + 0x200).contains(&name) => return,
            () => Code::InvalidName,
        };
        assert_eq!(result, refused(expected), "{what}");
    }

    /// The heap as a program uses it: what it commits is there the next time.
    fn assert_heap_works(&mut self, value: u32) {
        let machine = &mut self.machine;
        // Something else may stand there by now.
        machine.put(BEHIND_WINDOW, b"heap");
        let base = machine.map_well(65536, WRITE);
        assert_eq!(base, HEAP);
        machine.store(base + DATA, value);
        let committed = machine.commit(base);
        assert!([0, 1].contains(&committed), "{committed}: {}", machine.words());
        assert_eq!(machine.unmap(base), 0);
        assert_eq!(machine.load(base + DATA), 0);
        assert_eq!(machine.map_well(0, WRITE), base);
        assert_eq!(machine.load(base + DATA), value);
    }
}

/// An address in the window, a count, or a code that is not one of a host in trouble.
fn is_documented(result: i32) -> bool {
    let trouble = [Code::Damaged, Code::Io, Code::DurabilityUnknown, Code::Dead];
    result > -17 && !trouble.map(refused).contains(&result)
}

#[test]
fn what_the_guest_is_told_stands_in_the_buffer_it_names_and_nowhere_else() {
    let ground = Ground::new();
    for whole in [false, true] {
        let mut asker = ground.start();
        if whole {
            asker.grow_to_the_end();
        }
        let base = asker.machine.map_well(65536, WRITE);
        for &out in ADDRESSES {
            for &out_bytes in LENGTHS {
                asker.stat(base, STAT_BYTES, out, out_bytes);
                asker.last_fault(out, out_bytes);
            }
        }
        asker.assert_heap_works(u32::from(whole) + 1);
    }
    ground.fixture.assert_sound();
}

#[test]
fn names_are_read_where_the_guest_has_memory_of_its_own_and_nowhere_else() {
    let ground = Ground::new();
    for whole in [false, true] {
        let mut asker = ground.start();
        if whole {
            asker.grow_to_the_end();
        }
        asker.machine.map_well(0, WRITE);
        for &name in ADDRESSES {
            for &name_bytes in LENGTHS {
                for level in [0, SNAPSHOT, WRITE] {
                    asker.map_named(name, name_bytes, 0, level);
                }
            }
        }
        asker.assert_heap_works(3);
    }
    ground.fixture.assert_sound();
}

#[test]
fn sizes_and_levels_of_any_number_are_served_or_refused_by_the_right_code() {
    let ground = Ground::new();
    for &bytes in LENGTHS {
        for &level in LEVELS {
            let mut asker = ground.start();
            let result = asker
                .call_beside("map", |machine| machine.call("map_heap", (bytes, level)).unwrap());
            let expected: &[i32] = match level {
                // Its address, or no room: 16 MiB are the application's quota, and the first test
                // that maps it makes it.
                3 if bytes > 16 << 20 => &[refused(Code::Quota)],
                3 => &[HEAP as i32],
                1 | 2 => &[HEAP as i32, refused(Code::NotFound)],
                _ => &[refused(Code::InvalidArgument)],
            };
            assert!(expected.contains(&result), "{bytes:#x} at level {level:#x}: {result}");
            if level == WRITE {
                asker.assert_heap_works(bytes ^ level);
                let base = asker.machine.map_well(0, WRITE);
                for other in [1, 2] {
                    assert_eq!(asker.machine.map(bytes, other), refused(Code::Busy));
                }
                assert_eq!(asker.machine.unmap(base), 0);
            }
        }
    }
    ground.fixture.assert_sound();
}

#[test]
fn only_the_address_of_a_superblock_is_an_objects_address() {
    let ground = Ground::new();
    let mut asker = ground.start();
    let base = asker.machine.map_well(0, WRITE);
    for &address in ADDRESSES.iter().filter(|&&address| address != base) {
        for function in ["unmap", "commit"] {
            let result =
                asker.call_beside(function, |machine| machine.call(function, address).unwrap());
            assert_eq!(result, refused(Code::NotMapped), "{function} {address:#x}");
        }
        for &out in ADDRESSES {
            let told: i32 = asker.machine.call("stat", (address, out, u32::MAX)).unwrap();
            assert_eq!(told, refused(Code::NotMapped), "stat {address:#x}");
        }
    }
    asker.assert_heap_works(9);
    ground.fixture.assert_sound();
}

/// One call of a guest that asks whatever comes into its head.
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

/// A number of the tables, one close to it, or any.
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

fn make(asker: &mut Asker, call: Call) {
    let what = format!("{call:x?}");
    match call {
        Call::Map { name, name_bytes, bytes, level } => {
            let parameters = (name, name_bytes, bytes, level);
            asker.call_beside(&what, |machine| machine.call("map_at", parameters).unwrap());
        }
        Call::MapHeap { bytes, level } => {
            asker.call_beside(&what, |machine| machine.call("map_heap", (bytes, level)).unwrap());
        }
        Call::Unmap(address) => {
            asker.call_beside(&what, |machine| machine.call("unmap", address).unwrap());
        }
        Call::Commit(address) => {
            asker.call_beside(&what, |machine| machine.call("commit", address).unwrap());
        }
        Call::Stat { address, out, out_bytes } => {
            let told: i32 =
                asker.machine.call("stat", (address, BEHIND_WINDOW + 0x200, 0)).unwrap();
            if told > 0 {
                asker.stat(address, told as u32, out, out_bytes);
            } else {
                assert_eq!(told, refused(Code::NotMapped), "{what}");
            }
        }
        Call::LastFault { out, out_bytes } => asker.last_fault(out, out_bytes),
        Call::Store(address) => asker.machine.store(address, address),
    }
}

#[test]
fn a_guest_that_asks_whatever_comes_into_its_head_harms_nobody() {
    let ground = Ground::new();
    let mut bystander = Machine({
        let other = ground.fixture.sandbox.application("other".parse().unwrap(), key_of("other"));
        let options = GuestOptions::new();
        ground.fixture.sandbox.start(&ground.module, &other.unwrap(), &options).unwrap()
    });
    let own = bystander.map_well(65536, WRITE);
    bystander.store(own + DATA, 77);
    assert_eq!(bystander.commit(own), 1);
    // What fails is in the message; no file in the project is to keep it.
    let settings = ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() };
    proptest!(settings, |(calls in prop::collection::vec(call(), 1..24), whole in any::<bool>())| {
        let mut asker = ground.start();
        if whole {
            asker.grow_to_the_end();
        }
        calls.into_iter().for_each(|call| make(&mut asker, call));
        // Whatever it mapped is let go of with it.
        drop(asker);
        ground.start().assert_heap_works(1);
    });
    assert_eq!(bystander.load(own + DATA), 77);
    assert_eq!(bystander.commit(own), 0, "nobody stored there");
    drop(bystander);
    ground.fixture.assert_sound();
}
