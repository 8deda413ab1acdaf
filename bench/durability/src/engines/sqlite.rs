//! SQLite: write-ahead log, `synchronous=FULL` (each commit flushes the log), automatic checkpoints
//! (after 1,000 pages of log) and one at the end.
//!
//! Eight bytes are changed in place by incremental blob writes, whole values by an update.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};

use crate::work::{Change, Engine, PAGE_BYTES, Scale, Times, Work};
use harness::Outcome;

pub struct Sqlite {
    connection: Option<Connection>,
    path: PathBuf,
    value: Vec<u8>,
}

impl Sqlite {
    pub fn new(path: &Path, scale: Scale) -> Outcome<Sqlite> {
        let mut sqlite =
            Sqlite { connection: None, path: path.to_path_buf(), value: vec![1; PAGE_BYTES] };
        sqlite.open()?;
        let connection = sqlite.connection()?;
        connection.execute_batch(
            "CREATE TABLE pages (number INTEGER PRIMARY KEY, value BLOB NOT NULL); BEGIN",
        )?;
        let mut insert = connection.prepare("INSERT INTO pages VALUES (?1, ?2)")?;
        for page in 0..scale.pages {
            insert.execute(params![page as i64, sqlite.value])?;
        }
        drop(insert);
        connection.execute_batch("COMMIT")?;
        sqlite.close()?;
        Ok(sqlite)
    }

    fn connection(&self) -> Outcome<&Connection> {
        self.connection.as_ref().ok_or_else(|| "not open".into())
    }
}

impl Engine for Sqlite {
    fn name(&self) -> String {
        "SQLite, WAL, synchronous=FULL".to_string()
    }

    fn open(&mut self) -> Outcome {
        let connection = Connection::open(&self.path)?;
        connection.execute_batch(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA mmap_size=2147418112; \
             PRAGMA cache_size=-65536",
        )?;
        self.connection = Some(connection);
        Ok(())
    }

    fn commit(&mut self, work: &Work) -> Outcome<Times> {
        let Sqlite { connection, value, .. } = self;
        let connection = connection.as_ref().ok_or("not open")?;
        let change = || change(connection, work, value);
        Times::of(change, |()| Ok(connection.execute_batch("COMMIT")?))
    }

    fn close(&mut self) -> Outcome {
        match self.connection.take() {
            Some(connection) => connection.close().map_err(|(_, error)| error.into()),
            None => Ok(()),
        }
    }
}

fn change(connection: &Connection, work: &Work, value: &mut [u8]) -> Outcome {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let mut update = connection.prepare_cached("UPDATE pages SET value = ?2 WHERE number = ?1")?;
    for &page in &work.pages {
        match work.change {
            Change::EightBytes => {
                let mut blob =
                    connection.blob_open(c"main", c"pages", c"value", page as i64, false)?;
                blob.write_at(&work.new_word().to_ne_bytes(), work.word() * 8)?;
            }
            Change::WholePage => {
                work.apply(page, value);
                update.execute(params![page as i64, &*value])?;
            }
        }
    }
    Ok(())
}
