//! Key-value stores: LMDB and redb, with the same keys in the same order and values of 56 bytes, in
//! one transaction. Both have a single writer, so one thread.

use std::path::Path;
use std::time::Instant;

use ::redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use heed::byteorder::BigEndian;
use heed::types::{Bytes, U64};
use heed::{Database as Lmdb, Env, EnvOpenOptions, WithTls};

use crate::building::Built;
use crate::opening::Opened;
use crate::tree::{preorder, value_of};
use harness::Outcome;
use harness::children::us_since;

/// Size of a node without its key.
const VALUE_BYTES: usize = 56;
/// Largest size of LMDB's file; reserves addresses only.
const MAP_BYTES: usize = 16 << 30;
const NODES: TableDefinition<u64, &[u8; VALUE_BYTES]> = TableDefinition::new("nodes");

type Nodes = Lmdb<U64<BigEndian>, Bytes>;

fn value(key: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    for word in value.chunks_exact_mut(8) {
        word.copy_from_slice(&value_of(key).to_le_bytes());
    }
    value
}

fn number(value: &[u8]) -> Outcome<u64> {
    Ok(u64::from_le_bytes(value.get(..8).ok_or("a value is too short")?.try_into()?))
}

fn lmdb(path: &Path) -> Outcome<Env<WithTls>> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES);
    // SAFETY: the folder belongs to this benchmark, and no other process opens or changes its
    // files.
    Ok(unsafe { options.open(path)? })
}

pub fn build_lmdb(folder: &Path, nodes: u64) -> Outcome<Built> {
    let env = lmdb(folder)?;
    let start = Instant::now();
    let mut transaction = env.write_txn()?;
    let table: Nodes = env.create_database(&mut transaction, None)?;
    preorder(0, nodes, &mut |key| table.put(&mut transaction, &key, &value(key)))?;
    let build_us = us_since(start);
    transaction.commit()?;
    Ok(Built { build_us, durable_us: us_since(start), ..Built::default() })
}

pub fn open_lmdb(start: Instant, folder: &Path, nodes: u64) -> Outcome<Opened> {
    let env = lmdb(folder)?;
    let transaction = env.read_txn()?;
    let table: Nodes = env.open_database(&transaction, None)?.ok_or("no nodes")?;
    let one = number(table.get(&transaction, &(nodes / 2))?.ok_or("no such node")?)?;
    Opened::measure(start, one, || {
        let mut sum: u64 = 0;
        for pair in table.iter(&transaction)? {
            sum = sum.wrapping_add(number(pair?.1)?);
        }
        Ok(sum)
    })
}

pub fn build_redb(folder: &Path, nodes: u64) -> Outcome<Built> {
    let database = Database::create(folder.join("nodes.redb"))?;
    let start = Instant::now();
    let transaction = database.begin_write()?;
    {
        let mut table = transaction.open_table(NODES)?;
        preorder(0, nodes, &mut |key| table.insert(key, &value(key)).map(drop))?;
    }
    let build_us = us_since(start);
    transaction.commit()?;
    Ok(Built { build_us, durable_us: us_since(start), ..Built::default() })
}

pub fn open_redb(start: Instant, folder: &Path, nodes: u64) -> Outcome<Opened> {
    let database = Database::open(folder.join("nodes.redb"))?;
    let table = database.begin_read()?.open_table(NODES)?;
    let one = number(table.get(nodes / 2)?.ok_or("no such node")?.value())?;
    Opened::measure(start, one, || {
        let mut sum: u64 = 0;
        for pair in table.iter()? {
            sum = sum.wrapping_add(number(pair?.1.value())?);
        }
        Ok(sum)
    })
}
