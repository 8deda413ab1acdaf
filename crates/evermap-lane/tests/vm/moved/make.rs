//! Files that go to the tier, are written to there or not, lose their originals or not, and come back: again and again.

use std::fs::File;
use std::os::unix::fs::FileExt;

use evermap_lane::Placement;
use evermap_lane::tier::{Journal, Keep, Plan, Request, Watch, back, commit, place};

use super::{At, BYTES, FILES, JOURNAL, Promise, TIER, contents, path};

/// As often each file goes and comes back.
const WAYS: usize = 4;

/// `announce` is called whenever something else is promised than before.
pub fn move_files(announce: &mut dyn FnMut(Promise)) {
    let journal = Journal::at(JOURNAL.as_ref()).unwrap();
    let mut maker = Maker { promise: Promise::nothing(), journal, announce };
    for way in 0..WAYS {
        // All files are at different places between any two of these.
        for file in 0..BYTES.len() {
            maker.write(file, At::Home);
            maker.go(file);
        }
        for file in 0..BYTES.len() {
            match (way + file) % 4 {
                // The original takes its place again.
                0 => {}
                1 => maker.write(file, At::Placed),
                2 => maker.commit(file),
                _ => {
                    maker.commit(file);
                    maker.write(file, At::Alone);
                }
            }
        }
        (0..BYTES.len()).for_each(|file| maker.back(file));
    }
}

struct Maker<'a> {
    promise: Promise,
    journal: Journal,
    announce: &'a mut dyn FnMut(Promise),
}

impl Maker<'_> {
    fn promise(&mut self, file: usize, at: At) {
        self.promise.0[file].1 = at;
        (self.announce)(self.promise);
    }

    /// Makes the file, or writes to it wherever it is.
    fn write(&mut self, file: usize, at: At) {
        let number = self.promise.0[file].0 + 1;
        if number > 1 {
            self.promise(file, At::Written);
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

    fn go(&mut self, file: usize) {
        self.promise(file, At::Moving);
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
        self.promise(file, At::Placed);
    }

    fn commit(&mut self, file: usize) {
        self.promise(file, At::Moving);
        commit(&self.journal, &path(file), &Watch::default()).unwrap();
        self.promise(file, At::Alone);
    }

    fn back(&mut self, file: usize) {
        self.promise(file, At::Moving);
        back(Some(&self.journal), None, &path(file), Keep::Neither, &Watch::default()).unwrap();
        self.promise(file, At::Home);
    }
}
