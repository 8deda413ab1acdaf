//! Tests strips: packing and unpacking, and that damaged strips give errors or at most wrong
//! pixels.
#![allow(clippy::unwrap_used)]

#[path = "support/random.rs"]
mod random;

use evermap_view::paint::{StripPacker, Strips};

use random::{Random, variable};

#[test]
fn damaged_strips_never_panic() {
    let random = &mut Random(variable("EVERMAP_SEED", 1) | 1);
    let mut packer = StripPacker::new(50);
    packer.push(&(0..50 * 64 * 3).map(|at| at / 7 * 13).collect::<Vec<u32>>());
    let strips = packer.finish();
    let mut pixels = vec![0; 50 * 64];
    for strip in 0..3 {
        Strips::new(strips.as_bytes()).unwrap().unpack(strip, &mut pixels).unwrap();
        assert_eq!(pixels[0], strip * 3200 / 7 * 13);
    }
    for _ in 0..variable("EVERMAP_STEPS", 20_000) {
        let mut bytes = strips.as_bytes().to_vec();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len());
            let near = random.below(48);
            bytes[at] = random.number() as u8;
            bytes[near] ^= if random.below(3) == 0 { 1 << random.below(8) } else { 0 };
        }
        bytes.truncate(bytes.len() - random.below(2) * random.below(bytes.len()));
        let Ok(strips) = Strips::new(&bytes) else { continue };
        for strip in [0, 1, 2, 3, u32::MAX] {
            _ = strips.unpack(strip, &mut pixels);
        }
    }
}
