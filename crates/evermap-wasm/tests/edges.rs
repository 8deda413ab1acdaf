//! A guest's accesses at the edges of the window and of its memory, with offsets close to the
//! 32-bit wrap. Each one succeeds or traps as the WebAssembly standard requires, and none raises a
//! signal that ends the host.
#![allow(clippy::unwrap_used)]

mod common;

use common::random::Random;
use common::{DATA, Fixture, Machine, key_of, module};
use evermap_wasm::{Application, End, GuestOptions, Module, SandboxOptions, Unmapped};

const SNAPSHOT: u32 = 1;
const READ: u32 = 2;
const WRITE: u32 = 3;

const WINDOW: u32 = 0x1000_0000;
const BEHIND_WINDOW: u32 = 0x5000_0000;
const MEMORY_BYTES: u32 = 20482 << 16;
/// Limit on fills that succeed, because each uses as much memory.
const BULK_BYTES_MAX: u64 = 1 << 20;
/// Bytes of the passive segment.
const SEGMENT_BYTES: u64 = 16;

const ADDRESSES: &[u32] = &[
    0,
    1,
    WINDOW - 16,
    WINDOW - 1,
    WINDOW,
    WINDOW + 0x3fff,
    WINDOW + 0x4000,
    WINDOW + (4 << 20) - 1,
    BEHIND_WINDOW - 16,
    BEHIND_WINDOW - 1,
    BEHIND_WINDOW,
    MEMORY_BYTES - 16,
    MEMORY_BYTES - 15,
    MEMORY_BYTES - 4,
    MEMORY_BYTES - 1,
    MEMORY_BYTES,
    MEMORY_BYTES + 0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_f000,
    0xffff_fff0,
    0xffff_fffc,
    u32::MAX,
];

const OFFSETS: &[u32] =
    &[0, 1, 0xfff, 0x1000, WINDOW, 0x7fff_ffff, 0x8000_0000, 0xffff_f000, 0xffff_fffc, u32::MAX];

const LENGTHS: &[u32] = &[
    0,
    1,
    15,
    16,
    17,
    0x1000,
    0x1_0000,
    0x10_0000,
    WINDOW,
    MEMORY_BYTES,
    0x8000_0000,
    0xffff_f000,
    u32::MAX,
];

/// An instruction: its text with `OFFSET` as placeholder, and the bytes that it touches.
struct Access {
    name: &'static str,
    text: &'static str,
    bytes: u64,
    /// Required alignment; other addresses trap.
    aligned_to: u64,
}

const fn access(name: &'static str, text: &'static str, bytes: u64) -> Access {
    Access { name, text, bytes, aligned_to: 1 }
}

const ACCESSES: &[Access] = &[
    access("load8", "(drop (i32.load8_u OFFSET (local.get 0)))", 1),
    access("load32", "(drop (i32.load OFFSET (local.get 0)))", 4),
    access("load64", "(drop (i64.load OFFSET (local.get 0)))", 8),
    access("load128", "(drop (v128.load OFFSET (local.get 0)))", 16),
    access("store8", "(i32.store8 OFFSET (local.get 0) (i32.const 1))", 1),
    access("store64", "(i64.store OFFSET (local.get 0) (i64.const 1))", 8),
    access("store128", "(v128.store OFFSET (local.get 0) (v128.const i64x2 1 2))", 16),
    Access {
        name: "atomic32",
        text: "(drop (i32.atomic.rmw.add OFFSET (local.get 0) (i32.const 1)))",
        bytes: 4,
        aligned_to: 4,
    },
];

/// Returns a module with a function for each instruction and offset, and for the bulk instructions.
fn text() -> String {
    let mut body = String::from(
        r#"(data $segment "0123456789abcdef")
        (func (export "at_init") (param i32 i32 i32)
            (memory.init $segment (local.get 0) (local.get 1) (local.get 2)))
        (func (export "at_fill") (param i32 i32)
            (memory.fill (local.get 0) (i32.const 1) (local.get 1)))
        (func (export "at_copy") (param i32 i32 i32)
            (memory.copy (local.get 0) (local.get 1) (local.get 2)))"#,
    );
    for access in ACCESSES {
        for offset in OFFSETS {
            let text = access.text.replace("OFFSET", &format!("offset={offset}"));
            let name = access.name;
            body += &format!(r#"(func (export "{name}_{offset}") (param i32) {text})"#);
        }
    }
    module(&body)
}

/// Guests with an object at the start of the window, and an object of another application that must
/// stay unchanged.
struct Setup {
    fixture: Fixture,
    application: Application,
    module: Module,
    level: u32,
    guest: Option<Machine>,
    guests_used: u32,
}

impl Setup {
    fn new(options: SandboxOptions, level: u32) -> Setup {
        let fixture = Fixture::in_memory(options);
        let application = fixture.application("app");
        let module = fixture.sandbox.compile("edges", text().as_bytes()).unwrap();
        let mut setup = Setup { fixture, application, module, level, guest: None, guests_used: 0 };
        let mut maker = setup.start();
        let base = maker.map_ok(1 << 20, WRITE);
        assert!((WINDOW..WINDOW + DATA).contains(&base));
        maker.store(base + DATA, 5);
        assert_eq!(maker.commit(base), 1);
        setup
    }

    fn start(&mut self) -> Machine {
        self.guests_used += 1;
        let options = GuestOptions::new();
        let sandbox = &self.fixture.sandbox;
        Machine(sandbox.start(&self.module, &self.application, &options).unwrap())
    }

    /// Calls a function of a live guest. Returns how it ended.
    fn call<P: evermap_wasm::wasmtime::WasmParams>(
        &mut self,
        function: &str,
        parameters: P,
    ) -> Result<(), End> {
        let mut guest = match self.guest.take() {
            Some(guest) => guest,
            None => {
                let level = self.level;
                let mut guest = self.start();
                guest.map_ok(0, level);
                guest
            }
        };
        let end = guest.0.call_with::<P, ()>(function, parameters).unwrap();
        if end.is_ok() {
            self.guest = Some(guest);
        }
        end
    }

    /// Calls a function and asserts that it traps exactly if the standard requires it.
    fn assert_call<P: evermap_wasm::wasmtime::WasmParams + std::fmt::Debug + Copy>(
        &mut self,
        function: &str,
        parameters: P,
        traps: bool,
    ) {
        let end = self.call(function, parameters);
        let as_expected = match &end {
            Ok(()) => !traps,
            Err(End::Trapped(why)) => {
                traps && (why.contains("out of bounds") || why.contains("unaligned"))
            }
            Err(_) => false,
        };
        assert!(as_expected, "{function} {parameters:x?}: {end:?}");
    }

    /// Asserts that the object is unchanged and that the host serves guests.
    fn assert_unharmed(mut self) {
        self.guest = None;
        let mut next = self.start();
        let base = next.map_ok(0, WRITE);
        assert_eq!(next.load(base + DATA), 5);
        next.store(base + DATA, 6);
        assert_eq!(next.commit(base), 1);
        drop(next);
        self.fixture.assert_sound();
    }
}

fn passes_end(address: u32, bytes: u64) -> bool {
    u64::from(address) + bytes > u64::from(MEMORY_BYTES)
}

#[test]
fn loads_and_stores_trap_only_beyond_the_memory() {
    let mut setup = Setup::new(SandboxOptions::new(), SNAPSHOT);
    for access in ACCESSES {
        for &offset in OFFSETS {
            let function = format!("{}_{offset}", access.name);
            for &address in ADDRESSES {
                let first = u64::from(address) + u64::from(offset);
                let beyond = first + access.bytes > u64::from(MEMORY_BYTES);
                let traps = beyond || !first.is_multiple_of(access.aligned_to);
                setup.assert_call(&function, address, traps);
            }
        }
    }
    assert!(setup.guests_used > 100, "too few calls trapped");
    setup.assert_unharmed();
}

#[test]
fn fills_copies_and_segments_trap_only_beyond_the_memory() {
    let mut setup = Setup::new(SandboxOptions::new(), SNAPSHOT);
    for &to in ADDRESSES {
        for &length in LENGTHS {
            let bytes = u64::from(length);
            if !passes_end(to, bytes) && bytes > BULK_BYTES_MAX {
                continue;
            }
            setup.assert_call("at_fill", (to, length), passes_end(to, bytes));
            for &from in ADDRESSES {
                let traps = passes_end(to, bytes) || passes_end(from, bytes);
                setup.assert_call("at_copy", (to, from, length), traps);
                let behind_segment = u64::from(from) + bytes > SEGMENT_BYTES;
                let traps = passes_end(to, bytes) || behind_segment;
                setup.assert_call("at_init", (to, from, length), traps);
            }
        }
    }
    setup.assert_unharmed();
}

/// With pages that fault, more accesses trap, and faults in host code end the guest but not the
/// host.
#[test]
fn faults_on_read_only_pages_and_holes_never_end_the_host() {
    let mut random = Random::from_environment("edges");
    let options = SandboxOptions::new().read_only_pages(true).unmapped(Unmapped::Hole);
    let mut setup = Setup::new(options, READ);
    let mut bystander = {
        let other = setup.fixture.sandbox.application("other".parse().unwrap(), key_of("other"));
        let options = GuestOptions::new();
        Machine(setup.fixture.sandbox.start(&setup.module, &other.unwrap(), &options).unwrap())
    };
    let own = bystander.map_ok(65536, WRITE);
    let mut ends = [0u32; 3];
    for turn in 0..1000 {
        let mut near = |corners: &[u32]| {
            let corner = corners[random.below(corners.len() as u64) as usize];
            corner.wrapping_add(random.below(64) as u32).wrapping_sub(32)
        };
        let (to, from, length) = (near(ADDRESSES), near(ADDRESSES), near(LENGTHS));
        let small = length % 0x2_0000;
        let offset = OFFSETS[turn % OFFSETS.len()];
        let access = &ACCESSES[turn % ACCESSES.len()];
        let end = match turn % 4 {
            0 => setup.call("at_fill", (to, small)),
            1 => setup.call("at_copy", (to, from, small)),
            2 => setup.call("at_init", (to, 0u32, small % 17)),
            _ => setup.call(&format!("{}_{offset}", access.name), to),
        };
        match end {
            Ok(()) => ends[0] += 1,
            Err(End::Trapped(_)) => ends[1] += 1,
            Err(End::Faulted { .. }) => ends[2] += 1,
            Err(other) => panic!("{other:?}"),
        }
        bystander.store(own + DATA, turn as u32);
        assert_eq!(bystander.commit(own), 1);
    }
    assert!(ends.iter().all(|&count| count > 50), "{ends:?}");
    assert_eq!(bystander.load(own + DATA), 999);
    drop(bystander);
    setup.assert_unharmed();
}
