//! Strips: what is packed is unpacked, and damaged ones are errors, or other pixels at most.
#![allow(clippy::unwrap_used)]

use evermap_view::paint::{StripPacker, Strips};

struct Random(u64);

impl Random {
    fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }
}

fn variable(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn damaged_strips_are_errors() {
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
