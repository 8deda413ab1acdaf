//! Guests with threads have a shared memory, into which no object is mapped. They are refused with
//! a reason.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Fixture, Machine, module};
use evermap_wasm::{Code, GuestOptions, SandboxOptions};

#[test]
fn by_default_a_module_with_a_shared_memory_does_not_start() {
    let fixture = Fixture::new();
    let text = module("").replace("20482)", "20482 20482 shared)");
    let refused = fixture.sandbox.compile("threads", text.as_bytes()).and_then(|module| {
        fixture.sandbox.start(&module, &fixture.application("app"), &GuestOptions::new())
    });
    let why = refused.map(drop).unwrap_err().to_string();
    eprintln!("{why}");
    assert!(why.contains("shared"), "{why}");
}

#[test]
fn objects_are_not_mapped_into_shared_memories_that_the_embedder_allows() {
    let options = SandboxOptions::new().config(|config| {
        config.shared_memory(true);
    });
    let fixture = Fixture::with(options);
    let text = module("").replace("20482)", "20482 20482 shared)");
    let module = fixture.sandbox.compile("threads", text.as_bytes()).unwrap();
    let application = fixture.application("app");
    let guest = fixture.sandbox.start(&module, &application, &GuestOptions::new()).unwrap();
    let mut guest = Machine(guest);
    let refused: i32 = guest.call("map_heap", (65536u32, 3u32)).unwrap();
    assert_eq!(refused, -(Code::MemoryLayout as i32));
}
