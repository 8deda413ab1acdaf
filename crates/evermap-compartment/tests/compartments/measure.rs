//! Measures the cost of a switch: `cargo test --release -p evermap-compartment --test compartments
//! -- --measure`.

use std::process::ExitCode;
use std::time::Instant;

use evermap::Access;
use evermap_compartment::compartments::{Class, assign, available};

use super::{object, put, store};

const ROUNDS: u32 = 1_000_000;

pub fn run() -> ExitCode {
    if !available() {
        println!("SKIPPED: this machine has no memory protection keys");
        return ExitCode::SUCCESS;
    }
    let (_directory, store) = store();
    let mut words = object(&store, "words");
    let class = Class::define("writer").unwrap();
    let started = Instant::now();
    assign(&mut words, &[(class, Access::Write)]).unwrap();
    println!("assign an object of one region: {} us", started.elapsed().as_micros());
    let each = |work: &mut dyn FnMut()| {
        let started = Instant::now();
        (0..ROUNDS).for_each(|_| work());
        started.elapsed().as_nanos() / u128::from(ROUNDS)
    };
    println!("enter and leave: {} ns", each(&mut || drop(class.enter())));
    let mut store_one = || {
        let _inside = class.enter();
        put(&words, 8);
    };
    println!("enter, store, leave: {} ns", each(&mut store_one));
    let _inside = class.enter();
    println!("store: {} ns", each(&mut || put(&words, 8)));
    ExitCode::SUCCESS
}
