//! A disk without one free block: removing objects works on it, whatever happens meanwhile.

use super::history::follow;
use super::image::{Image, Operation};
use super::model::Model;
use super::platter::Medium;
use super::random::Random;
use super::store::{Act, Program, new_window, stop};

/// What a store went through before its disk was full.
const BEFORE: &[&[Act]] = &[
    &[Act::Make, Act::Create("a")],
    &[Act::Make, Act::Batch(&["a", "b", "c", "d", "e", "f", "g"])],
    &[Act::Make, Act::Create("a"), Act::Create("b"), Act::Remove("a"), Act::Reopen],
    &[Act::Make, Act::Batch(&["a", "b"]), Act::Write("a"), Act::Replace("b"), Act::Reopen],
];

/// Removes every object there is, one by one.
fn remove_all(program: &mut Program) -> Result<(), String> {
    let names: Vec<String> = program.now.keys().cloned().collect();
    for name in names {
        let removed = program.act(Act::Remove(name.clone().leak()));
        removed.map_err(|e| format!("`{name}` was not removed: {e}"))?;
    }
    Ok(())
}

/// Opens what a cut left of a store on a full disk, and removes the rest.
fn go_on(program: &mut Program, model: &Model) -> Result<(), String> {
    program.disk.fill();
    program.open().map_err(|e| format!("opening: {e}"))?;
    program.look(model)?;
    remove_all(program)
}

#[test]
fn objects_are_removed_from_a_full_disk_also_after_any_cut() {
    let window = new_window();
    let mut cuts = 0;
    for (index, acts) in BEFORE.iter().enumerate() {
        let mut program = Program::new(Image::new(Medium::DISK), window, Vec::new());
        acts.iter().try_for_each(|act| program.act(*act)).unwrap();
        let filled_at = program.disk.trace().operations.len();
        program.disk.fill();
        remove_all(&mut program).unwrap_or_else(|why| panic!("{acts:?}: {why}"));
        let trace = program.disk.trace();
        let states = program.states.clone();
        drop(program);
        let mut before = trace.start.clone();
        trace.operations[..filled_at].iter().for_each(|o| {
            before.happen(o);
        });
        let mut model = Model::default();
        follow(&mut model, &trace.operations[..filled_at]).unwrap();
        for (cut, next) in trace.operations.iter().enumerate().skip(filled_at) {
            for seed in 0..3 {
                let mut random = Random::of(&[index as u64, cut as u64, seed]);
                let (image, end) = stop(&before, Some(next), None, &mut random);
                let mut model = model.clone();
                model.ended(end);
                cuts += 1;
                let mut program = Program::new(image, window, states.clone());
                go_on(&mut program, &model)
                    .unwrap_or_else(|why| panic!("{acts:?}, {end:?} at {cut}, seed {seed}: {why}"));
            }
            before.happen(next);
            if let Operation::Mark(mark) = next {
                model.follow(*mark).unwrap();
            }
        }
    }
    assert!(cuts > 200, "only {cuts} cuts");
}
