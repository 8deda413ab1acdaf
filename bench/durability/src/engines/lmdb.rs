//! LMDB with its defaults: copy-on-write pages; each commit flushes the data and a meta page.
//!
//! A value of 4,096 bytes takes two of its pages, because the first has a head of 16 bytes. So
//! values of 4,080 bytes, which fit in one page, are measured as well.

use std::path::Path;

use heed::byteorder::BigEndian;
use heed::types::{Bytes, U64};
use heed::{Database, Env, EnvOpenOptions, PutFlags, RwTxn, WithTls};

use crate::work::{Engine, Scale, Times, Work};
use harness::Outcome;

/// Largest size of the file; reserves addresses only.
const MAP_BYTES: usize = 8 << 30;

pub struct Lmdb {
    env: Env<WithTls>,
    values: Database<U64<BigEndian>, Bytes>,
    value: Vec<u8>,
}

impl Lmdb {
    pub fn new(path: &Path, scale: Scale, value_bytes: usize) -> Outcome<Lmdb> {
        std::fs::create_dir(path)?;
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES);
        // SAFETY: the folder belongs to this benchmark, and no other process opens or changes its
        // files.
        let env = unsafe { options.open(path)? };
        let value = vec![1; value_bytes];
        let mut transaction = env.write_txn()?;
        let values = env.create_database(&mut transaction, None)?;
        for page in 0..scale.pages {
            values.put_with_flags(&mut transaction, PutFlags::APPEND, &page, &value[..])?;
        }
        transaction.commit()?;
        Ok(Lmdb { env, values, value })
    }
}

impl Engine for Lmdb {
    fn name(&self) -> String {
        format!("LMDB, values of {} bytes", self.value.len())
    }

    fn open(&mut self) -> Outcome {
        Ok(())
    }

    fn commit(&mut self, work: &Work) -> Outcome<Times> {
        let Lmdb { env, values, value } = self;
        let change = || {
            let mut transaction = env.write_txn()?;
            for page in &work.pages {
                let old = values.get(&transaction, page)?.ok_or("a value is missing")?;
                value.copy_from_slice(old);
                work.apply(*page, value);
                values.put(&mut transaction, page, value)?;
            }
            Ok(transaction)
        };
        Times::of(change, |transaction: RwTxn<'_>| Ok(transaction.commit()?))
    }

    /// Does nothing: commits defer no work.
    fn close(&mut self) -> Outcome {
        Ok(())
    }
}
