//! Values in objects are released, not dropped.

use evermap::{PString, Persist};

#[derive(Persist)]
#[repr(C)]
struct Noisy {
    text: PString,
}

impl Drop for Noisy {
    fn drop(&mut self) {
        println!("never");
    }
}

fn main() {}
