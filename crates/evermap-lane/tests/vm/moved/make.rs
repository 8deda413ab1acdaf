//! Repeatedly places files on the tier, modifies them, drops originals, and takes the files back.

use std::fs::File;
use std::os::unix::fs::FileExt;

use evermap_lane::Placement;
use evermap_lane::tier::{Journal, Keep, Plan, Request, Watch, back, commit, place};

use super::{BYTES, FILES, JOURNAL, Location, Promise, TIER, contents, path};

/// Number of rounds for each file.
const ROUNDS: usize = 4;

/// Moves the files. Calls `announce` before and after each change of the promise.
pub fn move_files(announce: &mut dyn FnMut(Promise)) {
    let journal = Journal::at(JOURNAL.as_ref()).unwrap();
    let mut mover = Mover { promise: Promise::nothing(), journal, announce };
    for round in 0..ROUNDS {
        // Between these operations, the files are in different places.
        for file in 0..BYTES.len() {
            mover.write(file, Location::Home);
            mover.place(file);
        }
        for file in 0..BYTES.len() {
            match (round + file) % 4 {
                // Keep the original, which takes its place again.
                0 => {}
                1 => mover.write(file, Location::Placed),
                2 => mover.commit(file),
                _ => {
                    mover.commit(file);
                    mover.write(file, Location::Alone);
                }
            }
        }
        (0..BYTES.len()).for_each(|file| mover.back(file));
    }
}

struct Mover<'a> {
    promise: Promise,
    journal: Journal,
    announce: &'a mut dyn FnMut(Promise),
}

impl Mover<'_> {
    fn promise(&mut self, file: usize, at: Location) {
        self.promise.0[file].1 = at;
        (self.announce)(self.promise);
    }

    /// Creates the file, or writes to it in its current place.
    fn write(&mut self, file: usize, at: Location) {
        let number = self.promise.0[file].0 + 1;
        if number > 1 {
            self.promise(file, Location::Written);
        }
        let mut options = File::options();
        let options = options.write(true).create(true).truncate(false);
        let opened = options.open(path(file)).unwrap();
        opened.write_all_at(&contents(file, number), 0).unwrap();
        opened.sync_all().unwrap();
        File::open(FILES).unwrap().sync_all().unwrap();
        self.promise.0[file].0 = number;
        self.promise(file, at);
    }

    fn place(&mut self, file: usize) {
        self.promise(file, Location::Moving);
        let request = Request {
            tier: TIER.into(),
            mode: Placement::Switch,
            files: vec![path(file)],
            budget_bytes: None,
            uses: Vec::new(),
        };
        let plan = Plan::make(&request).unwrap();
        let applied = place(&plan, Some(&self.journal), &Watch::default()).unwrap();
        assert_eq!(applied.placed.len(), 1, "{plan:?} {applied:?}");
        self.promise(file, Location::Placed);
    }

    fn commit(&mut self, file: usize) {
        self.promise(file, Location::Moving);
        commit(&self.journal, &path(file), &Watch::default()).unwrap();
        self.promise(file, Location::Alone);
    }

    fn back(&mut self, file: usize) {
        self.promise(file, Location::Moving);
        back(Some(&self.journal), None, &path(file), Keep::Neither, &Watch::default()).unwrap();
        self.promise(file, Location::Home);
    }
}
