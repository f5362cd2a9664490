//! One small interface over each engine, so that every measurement runs the
//! very same operations on all of them.

use std::{error::Error, fs, path::Path};

pub type Res<T> = Result<T, Box<dyn Error>>;

#[derive(Clone, Copy)]
pub enum Table {
    Jobs,
    State,
    Leases,
}

const TABLE_NAMES: [&str; 3] = ["jobs", "state", "leases"];

pub enum Op<'a> {
    Put(Table, u64, &'a [u8]),
    Del(Table, u64),
}

/// How far a commit has to get before it returns.
#[derive(Clone, Copy, PartialEq)]
pub enum Until {
    /// Survives power loss.
    Disk,
    /// The cheapest commit the engine has. Whether it survives `kill -9` is
    /// one of the things measured.
    Os,
}

pub trait Store {
    fn commit(&self, ops: &[Op], until: Until) -> Res<()>;
    /// Total length of the records found under `keys`.
    fn read(&self, table: Table, keys: &[u64]) -> Res<usize>;
    /// Visits records in key order until `visit` returns false.
    fn scan(&self, table: Table, visit: &mut dyn FnMut(u64, &[u8]) -> bool) -> Res<()>;
}

pub const ENGINES: [&str; 4] = ["fjall", "fjall-default", "redb", "lmdb"];

pub fn open(engine: &str, dir: &Path) -> Res<Box<dyn Store>> {
    Ok(match engine {
        "fjall" => Box::new(Fjall::open(dir, true)?),
        "fjall-default" => Box::new(Fjall::open(dir, false)?),
        "redb" => Box::new(Redb::open(dir)?),
        "lmdb" => Box::new(Lmdb::open(dir)?),
        other => return Err(format!("no engine called {other}").into()),
    })
}

const MIB: u64 = 1024 * 1024;
const CACHE_BYTES: u64 = 128 * MIB;

pub struct Fjall {
    pub db: fjall::Database,
    tables: [fjall::Keyspace; 3],
}

impl Fjall {
    pub fn open(dir: &Path, tuned: bool) -> Res<Self> {
        use fjall::{Database, KeyspaceCreateOptions as Options, config::CompressionPolicy};

        let mut builder = Database::builder(dir);
        if tuned {
            // The journal is replayed on open, so its limit bounds the open time.
            builder = builder.cache_size(CACHE_BYTES).max_journaling_size(128 * MIB);
        }
        let db = builder.open()?;
        // A keyspace that seldom fills its memtable keeps old journals alive:
        // the smaller the records, the smaller the memtable should be.
        let memtable_bytes = [32 * MIB, 8 * MIB, 2 * MIB];
        let keyspace = |i: usize| {
            db.keyspace(TABLE_NAMES[i], || {
                if !tuned {
                    return Options::default();
                }
                Options::default()
                    .max_memtable_size(memtable_bytes[i])
                    .data_block_compression_policy(CompressionPolicy::disabled())
                    .expect_point_read_hits(true)
            })
        };
        let tables = [keyspace(0)?, keyspace(1)?, keyspace(2)?];
        Ok(Self { db, tables })
    }
}

impl Store for Fjall {
    fn commit(&self, ops: &[Op], until: Until) -> Res<()> {
        let mode = match until {
            Until::Disk => fjall::PersistMode::SyncData,
            Until::Os => fjall::PersistMode::Buffer,
        };
        let mut batch = fjall::OwnedWriteBatch::with_capacity(self.db.clone(), ops.len());
        for op in ops {
            match *op {
                Op::Put(table, key, value) => {
                    batch.insert(&self.tables[table as usize], key.to_be_bytes(), value);
                }
                Op::Del(table, key) => {
                    batch.remove(&self.tables[table as usize], key.to_be_bytes());
                }
            }
        }
        Ok(batch.durability(Some(mode)).commit()?)
    }

    fn read(&self, table: Table, keys: &[u64]) -> Res<usize> {
        let mut bytes = 0;
        for key in keys {
            let value = self.tables[table as usize].get(key.to_be_bytes())?;
            bytes += value.map_or(0, |v| v.len());
        }
        Ok(bytes)
    }

    fn scan(&self, table: Table, visit: &mut dyn FnMut(u64, &[u8]) -> bool) -> Res<()> {
        for entry in self.tables[table as usize].iter() {
            let (key, value) = entry.into_inner()?;
            if !visit(u64::from_be_bytes(key[..].try_into()?), &value) {
                break;
            }
        }
        Ok(())
    }
}

type RedbTable = redb::TableDefinition<'static, u64, &'static [u8]>;
const REDB_TABLES: [RedbTable; 3] = [
    RedbTable::new(TABLE_NAMES[0]),
    RedbTable::new(TABLE_NAMES[1]),
    RedbTable::new(TABLE_NAMES[2]),
];

struct Redb(redb::Database);

impl Redb {
    fn open(dir: &Path) -> Res<Self> {
        fs::create_dir_all(dir)?;
        let db = redb::Database::builder()
            .set_cache_size(CACHE_BYTES as usize)
            .create(dir.join("data.redb"))?;
        // Readers fail on a table that no writer has opened yet.
        let txn = db.begin_write()?;
        for table in REDB_TABLES {
            txn.open_table(table)?;
        }
        txn.commit()?;
        Ok(Self(db))
    }
}

impl Store for Redb {
    fn commit(&self, ops: &[Op], until: Until) -> Res<()> {
        let mut txn = self.0.begin_write()?;
        txn.set_durability(match until {
            Until::Disk => redb::Durability::Immediate,
            Until::Os => redb::Durability::None,
        })?;
        {
            let [mut jobs, mut state, mut leases] = [
                txn.open_table(REDB_TABLES[0])?,
                txn.open_table(REDB_TABLES[1])?,
                txn.open_table(REDB_TABLES[2])?,
            ];
            for op in ops {
                let (table, key) = match *op {
                    Op::Put(table, key, _) | Op::Del(table, key) => (table, key),
                };
                let table = match table {
                    Table::Jobs => &mut jobs,
                    Table::State => &mut state,
                    Table::Leases => &mut leases,
                };
                match op {
                    Op::Put(_, _, value) => drop(table.insert(key, value)?),
                    Op::Del(..) => drop(table.remove(key)?),
                }
            }
        }
        Ok(txn.commit()?)
    }

    fn read(&self, table: Table, keys: &[u64]) -> Res<usize> {
        use redb::ReadableDatabase;
        let table = self.0.begin_read()?.open_table(REDB_TABLES[table as usize])?;
        let mut bytes = 0;
        for key in keys {
            bytes += table.get(key)?.map_or(0, |v| v.value().len());
        }
        Ok(bytes)
    }

    fn scan(&self, table: Table, visit: &mut dyn FnMut(u64, &[u8]) -> bool) -> Res<()> {
        use redb::{ReadableDatabase, ReadableTable};
        let table = self.0.begin_read()?.open_table(REDB_TABLES[table as usize])?;
        for entry in table.iter()? {
            let (key, value) = entry?;
            if !visit(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }
}

type LmdbTable = heed::Database<heed::types::U64<heed::byteorder::BE>, heed::types::Bytes>;

struct Lmdb {
    env: heed::Env,
    tables: Vec<LmdbTable>,
}

impl Lmdb {
    fn open(dir: &Path) -> Res<Self> {
        fs::create_dir_all(dir)?;
        // SAFETY: nothing else truncates or rewrites the map file.
        let env = unsafe {
            heed::EnvOpenOptions::new()
                .map_size(16 << 30)
                .max_dbs(TABLE_NAMES.len() as u32)
                .open(dir)?
        };
        let mut txn = env.write_txn()?;
        let tables = TABLE_NAMES
            .iter()
            .map(|name| env.create_database(&mut txn, Some(name)))
            .collect::<Result<_, _>>()?;
        txn.commit()?;
        Ok(Self { env, tables })
    }
}

impl Store for Lmdb {
    fn commit(&self, ops: &[Op], until: Until) -> Res<()> {
        let mode = match until {
            Until::Disk => heed::FlagSetMode::Disable,
            Until::Os => heed::FlagSetMode::Enable,
        };
        // SAFETY: one thread writes, so no commit is under way on another.
        unsafe { self.env.set_flags(heed::EnvFlags::NO_SYNC, mode)? };
        let mut txn = self.env.write_txn()?;
        for op in ops {
            match *op {
                Op::Put(table, key, value) => {
                    self.tables[table as usize].put(&mut txn, &key, value)?;
                }
                Op::Del(table, key) => {
                    self.tables[table as usize].delete(&mut txn, &key)?;
                }
            }
        }
        Ok(txn.commit()?)
    }

    fn read(&self, table: Table, keys: &[u64]) -> Res<usize> {
        let txn = self.env.read_txn()?;
        let mut bytes = 0;
        for key in keys {
            bytes += self.tables[table as usize].get(&txn, key)?.map_or(0, <[u8]>::len);
        }
        Ok(bytes)
    }

    fn scan(&self, table: Table, visit: &mut dyn FnMut(u64, &[u8]) -> bool) -> Res<()> {
        let txn = self.env.read_txn()?;
        for entry in self.tables[table as usize].iter(&txn)? {
            let (key, value) = entry?;
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}
