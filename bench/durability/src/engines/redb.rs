//! redb with its defaults: `Durability::Immediate`, 1 GiB of cache.

use std::path::{Path, PathBuf};

use ::redb::{Database, ReadableTable, TableDefinition};

use crate::work::{Engine, PAGE_BYTES, Scale, Times, Work};
use harness::Outcome;

const VALUES: TableDefinition<u64, &[u8]> = TableDefinition::new("values");

pub struct Redb {
    database: Option<Database>,
    path: PathBuf,
    value: Vec<u8>,
}

impl Redb {
    pub fn new(path: &Path, scale: Scale) -> Outcome<Redb> {
        let database = Database::create(path)?;
        let value = vec![1; PAGE_BYTES];
        let transaction = database.begin_write()?;
        {
            let mut values = transaction.open_table(VALUES)?;
            for page in 0..scale.pages {
                values.insert(page, &value[..])?;
            }
        }
        transaction.commit()?;
        Ok(Redb { database: None, path: path.to_path_buf(), value })
    }
}

impl Engine for Redb {
    fn name(&self) -> String {
        "redb".to_string()
    }

    fn open(&mut self) -> Outcome {
        self.database = Some(Database::open(&self.path)?);
        Ok(())
    }

    fn commit(&mut self, work: &Work) -> Outcome<Times> {
        let Redb { database, value, .. } = self;
        let database = database.as_ref().ok_or("not open")?;
        let change = || {
            let transaction = database.begin_write()?;
            {
                let mut values = transaction.open_table(VALUES)?;
                for page in &work.pages {
                    let old = values.get(page)?.ok_or("a value is missing")?;
                    value.copy_from_slice(old.value());
                    drop(old);
                    work.apply(*page, value);
                    values.insert(page, &value[..])?;
                }
            }
            Ok(transaction)
        };
        Times::of(change, |transaction| Ok(transaction.commit()?))
    }

    fn close(&mut self) -> Outcome {
        self.database = None;
        Ok(())
    }
}
