//! Evermap: one object with a vector of words. Pages are changed by stores into it.

use std::hint::black_box;
use std::path::{Path, PathBuf};

use evermap::{PVec, Session, Store};

use crate::work::{Change, Engine, PAGE_BYTES, Scale, Times, WORDS_PER_PAGE, Work};
use harness::{Outcome, caches};

pub const NAME: &str = "words";
pub type Words = PVec<u64>;

pub struct Evermap {
    store: Store,
    session: Option<Session<Words>>,
}

impl Evermap {
    /// Creates the pages.
    pub fn new(path: &Path, scale: Scale) -> Outcome<Evermap> {
        let store = Store::create_new(path)?;
        store.create::<Words, _>(NAME, PVec::new())?;
        let mut session = store.write::<Words>(NAME)?;
        session.root_mut().resize(scale.bytes() / 8, 1)?;
        session.commit()?;
        session.close()?;
        Ok(Evermap { store, session: None })
    }

    /// Drops the object's pages from the page cache, so that sessions read them again.
    pub fn forget_pages(&self) -> Outcome {
        caches::drop_file(&self.file()?)
    }

    pub fn file(&self) -> Outcome<PathBuf> {
        Ok(self.store.path().join("objects").join(self.store.info(NAME)?.uuid))
    }

    pub fn session(&mut self) -> Outcome<&mut Session<Words>> {
        self.session.as_mut().ok_or_else(|| "no session is open".into())
    }
}

/// Calls `act` with the words from the first page on that belongs wholly to the vector.
pub fn with_words<T>(session: &mut Session<Words>, act: impl FnOnce(&mut [u64]) -> T) -> T {
    let mut root = session.root_mut();
    let words = root.as_mut_slice();
    let first = words.as_ptr().addr().next_multiple_of(PAGE_BYTES) - words.as_ptr().addr();
    act(&mut words[first / 8..])
}

/// Reads a word of each page.
pub fn read_all(session: &mut Session<Words>) {
    with_words(session, |words| {
        for page in words.chunks(WORDS_PER_PAGE) {
            black_box(page[0]);
        }
    });
}

/// Stores the changes of one commit.
pub fn store(session: &mut Session<Words>, work: &Work) {
    with_words(session, |words| {
        for &page in &work.pages {
            let at = page as usize * WORDS_PER_PAGE;
            match work.change {
                Change::EightBytes => words[at + work.word()] = work.new_word(),
                Change::WholePage => words[at..at + WORDS_PER_PAGE].fill(work.filling(page)),
            }
        }
    });
}

impl Engine for Evermap {
    fn name(&self) -> String {
        "Evermap".to_string()
    }

    fn open(&mut self) -> Outcome {
        self.session = Some(self.store.write::<Words>(NAME)?);
        Ok(())
    }

    fn commit(&mut self, work: &Work) -> Outcome<Times> {
        let session = self.session()?;
        Times::of(
            || {
                store(session, work);
                Ok(session)
            },
            |session| {
                session.commit()?;
                Ok(())
            },
        )
    }

    fn close(&mut self) -> Outcome {
        match self.session.take() {
            Some(session) => Ok(session.close()?),
            None => Ok(()),
        }
    }
}
