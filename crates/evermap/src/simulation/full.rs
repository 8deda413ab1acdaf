//! A disk without free blocks: objects can be removed, also after a crash at any operation.

use super::image::{Image, Operation};
use super::model::Model;
use super::random::Random;
use super::store::{Program, StoreStep, new_window, stop};
use super::versions::Medium;
use super::workload::follow;

/// Steps of a store before its disk is full.
const BEFORE: &[&[StoreStep]] = &[
    &[StoreStep::Make, StoreStep::Create("a")],
    &[StoreStep::Make, StoreStep::Batch(&["a", "b", "c", "d", "e", "f", "g"])],
    &[
        StoreStep::Make,
        StoreStep::Create("a"),
        StoreStep::Create("b"),
        StoreStep::Remove("a"),
        StoreStep::Reopen,
    ],
    &[
        StoreStep::Make,
        StoreStep::Batch(&["a", "b"]),
        StoreStep::Write("a"),
        StoreStep::Replace("b"),
        StoreStep::Reopen,
    ],
];

/// Removes all objects one by one.
fn remove_all(program: &mut Program) -> Result<(), String> {
    let names: Vec<String> = program.now.keys().cloned().collect();
    for name in names {
        let removed = program.step(StoreStep::Remove(name.clone().leak()));
        removed.map_err(|e| format!("`{name}` was not removed: {e}"))?;
    }
    Ok(())
}

/// Opens the store after a crash on a full disk, and removes the remaining objects.
fn remove_remaining(program: &mut Program, model: &Model) -> Result<(), String> {
    program.disk.fill();
    program.open().map_err(|e| format!("opening: {e}"))?;
    program.look(model)?;
    remove_all(program)
}

#[test]
fn objects_can_be_removed_from_a_full_disk_after_any_crash() {
    let window = new_window();
    let mut crash_points = 0;
    for (index, steps) in BEFORE.iter().enumerate() {
        let mut program = Program::new(Image::new(Medium::DISK), window, Vec::new());
        steps.iter().try_for_each(|step| program.step(*step)).unwrap();
        let filled_at = program.disk.trace().operations.len();
        program.disk.fill();
        remove_all(&mut program).unwrap_or_else(|why| panic!("{steps:?}: {why}"));
        let trace = program.disk.trace();
        let states = program.states.clone();
        drop(program);
        let mut before = trace.start.clone();
        trace.operations[..filled_at].iter().for_each(|o| {
            before.apply(o);
        });
        let mut model = Model::default();
        follow(&mut model, &trace.operations[..filled_at]).unwrap();
        for (crash_point, next) in trace.operations.iter().enumerate().skip(filled_at) {
            for seed in 0..3 {
                let mut random = Random::of(&[index as u64, crash_point as u64, seed]);
                let (image, end) = stop(&before, Some(next), None, &mut random);
                let mut model = model.clone();
                model.ended(end);
                crash_points += 1;
                let mut program = Program::new(image, window, states.clone());
                remove_remaining(&mut program, &model).unwrap_or_else(|why| {
                    panic!("{steps:?}, {end:?} at {crash_point}, seed {seed}: {why}")
                });
            }
            before.apply(next);
            if let Operation::Mark(mark) = next {
                model.follow(*mark).unwrap();
            }
        }
    }
    assert!(crash_points > 200, "only {crash_points} crash points");
}
