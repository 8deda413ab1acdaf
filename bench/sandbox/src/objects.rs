//! Child processes of section `instances`: they make ten objects, and run instances that load a
//! word of each.
//!
//! The module is as small as possible, so that the cost of objects is visible. It has one function
//! that makes an object, and one that maps snapshots and loads the first word of each. A guest maps
//! them itself, so the host does not call it for each object.

use std::io::Write;
use std::time::{Duration, Instant};

use evermap_wasm::{Application, Guest, GuestOptions, Module, Sandbox, SecretKey};

use crate::cost::{Cost, Whose};
use crate::guest::sandbox;
use harness::Outcome;
use harness::running::monotonic_ns;

/// Number of objects in the store.
pub const OBJECTS: usize = 10;
/// Bytes of data in each object.
pub const OBJECT_BYTES: usize = 1 << 20;

/// The names are 16 bytes apart. Data begin after the metadata, which take at most 64 KiB of an
/// object.
const MODULE: &str = r#"(module
    (import "evermap" "map" (func $map (param i32 i32 i32 i32) (result i32)))
    (import "evermap" "commit" (func $commit (param i32) (result i32)))
    (memory (export "memory") 20481)
    (data (i32.const 0x50000000) "object-0        object-1        object-2        object-3        object-4        ")
    (data (i32.const 0x50000050) "object-5        object-6        object-7        object-8        object-9        ")
    (func $object (param $number i32) (param $bytes i32) (param $level i32) (result i32)
        (call $map (i32.add (i32.const 0x50000000) (i32.mul (local.get $number) (i32.const 16)))
            (i32.const 8) (local.get $bytes) (local.get $level)))
    (func (export "make") (param $number i32) (param $bytes i32) (param $byte i32) (result i32)
        (local $base i32)
        (local.set $base (call $object (local.get $number) (local.get $bytes) (i32.const 3)))
        (if (i32.lt_s (local.get $base) (i32.const 0)) (then (return (local.get $base))))
        (memory.fill (i32.add (local.get $base) (i32.const 65536)) (local.get $byte) (local.get $bytes))
        (call $commit (local.get $base)))
    (func (export "first_words") (param $count i32) (result i32)
        (local $number i32) (local $base i32) (local $sum i32)
        (loop $next
            (local.set $base (call $object (local.get $number) (i32.const 0) (i32.const 1)))
            (if (i32.lt_s (local.get $base) (i32.const 0)) (then (return (local.get $base))))
            (local.set $sum (i32.add (local.get $sum)
                (i32.load (i32.add (local.get $base) (i32.const 65536)))))
            (local.set $number (i32.add (local.get $number) (i32.const 1)))
            (br_if $next (i32.lt_u (local.get $number) (local.get $count))))
        (local.get $sum))
    (func (export "own_word") (result i32) (i32.load (i32.const 0x50000000))))"#;

/// Byte that fills an object.
fn byte_of(number: usize) -> i32 {
    0x10 + number as i32
}

/// Engine, store, compiled module and application, ready to start instances.
struct Ready {
    sandbox: Sandbox,
    module: Module,
    application: Application,
}

impl Ready {
    fn new(store: &str) -> Outcome<Ready> {
        let sandbox = sandbox(store.as_ref())?;
        let module = sandbox.compile("objects", MODULE.as_bytes())?;
        let key = SecretKey::from_bytes([7; 32]);
        let application = sandbox.application("bench".parse()?, key)?;
        Ok(Ready { sandbox, module, application })
    }

    fn start(&self) -> Outcome<Guest> {
        Ok(self.sandbox.start(&self.module, &self.application, &GuestOptions::new())?)
    }
}

/// Runs as `bench-sandbox child make STORE`: makes the objects.
pub fn make(store: &str) -> Outcome {
    let ready = Ready::new(store)?;
    let mut guest = ready.start()?;
    for number in 0..OBJECTS {
        let parameters = (number as i32, OBJECT_BYTES as i32, byte_of(number));
        let committed = called(guest.call_with::<_, i32>("make", parameters)?)?;
        if committed != 1 {
            return Err(format!("making object {number} failed: {committed}").into());
        }
    }
    Ok(())
}

/// Runs as `bench-sandbox child start COUNT STORE`: one instance loads a word of `COUNT` objects,
/// or of its own memory, and prints the time at which it had them.
pub fn start(count: &str, store: &str) -> Outcome {
    let count = parse(count)?;
    let ready = Ready::new(store)?;
    let mut guest = ready.start()?;
    load(&mut guest, count)?;
    let loaded_ns = monotonic_ns();
    println!("{loaded_ns}");
    Ok(())
}

/// Runs as `bench-sandbox child instances COUNT ROUNDS STORE`: starts instances repeatedly in one
/// process, each time without objects and with them. Prints for each: objects, time to the last
/// word, time of the end, faults.
pub fn instances(count: &str, rounds: &str, store: &str) -> Outcome {
    let (count, rounds) = (parse(count)?, parse(rounds)?);
    let ready = Ready::new(store)?;
    let mut output = String::new();
    for round in 0..=rounds {
        for objects in [0, count] {
            let before = Cost::until_now(Whose::Own)?;
            let begin = Instant::now();
            let mut guest = ready.start()?;
            load(&mut guest, objects)?;
            let loaded = begin.elapsed();
            let faults = Cost::until_now(Whose::Own)?.since(before).minor_faults;
            let end = Instant::now();
            drop(guest);
            let ended = end.elapsed();
            // Round 0 warms the caches.
            if round > 0 {
                output += &line(objects, loaded, ended, faults);
            }
        }
    }
    Ok(std::io::stdout().write_all(output.as_bytes())?)
}

fn line(objects: usize, loaded: Duration, ended: Duration, faults: u64) -> String {
    format!("{objects} {} {} {faults}\n", loaded.as_nanos(), ended.as_nanos())
}

fn load(guest: &mut Guest, count: usize) -> Outcome {
    if count == 0 {
        called(guest.call_with::<_, i32>("own_word", ())?)?;
        return Ok(());
    }
    let sum = called(guest.call_with::<_, i32>("first_words", count as i32)?)?;
    let word = |number| i32::from_ne_bytes([byte_of(number) as u8; 4]);
    if sum != (0..count).map(word).fold(0, i32::wrapping_add) {
        return Err(
            format!("the first words of {count} objects have the wrong sum {sum:#x}").into()
        );
    }
    Ok(())
}

fn called<T>(result: Result<T, evermap_wasm::End>) -> Outcome<T> {
    result.map_err(|end| format!("the guest ended: {end:?}").into())
}

fn parse(number: &str) -> Outcome<usize> {
    number.parse().map_err(|_| format!("`{number}` is not a number").into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn ten_objects_are_made_and_another_instance_finds_each() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        let store = store.to_str().unwrap();
        make(store).unwrap();
        let ready = Ready::new(store).unwrap();
        load(&mut ready.start().unwrap(), OBJECTS).unwrap();
        load(&mut ready.start().unwrap(), 0).unwrap();
        assert!(load(&mut ready.start().unwrap(), OBJECTS + 1).is_err(), "only ten objects exist");
    }
}
