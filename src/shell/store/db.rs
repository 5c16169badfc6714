//! The open store of a process. Only this file knows which engine keeps the data; all operations
//! are those of the port.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::port::StoreEngine;
pub use super::port::threads::wait_until_closed;
pub use super::port::{
    BackupRows, ClaimKey, ClientToken, ConsoleSignIn, DbError, LoginKey, LoginRowClaim, NewLogin, ReplicaLogs,
    ResealPosition, SecretDigest, SessionRows, StoreHealth, TOKEN_PREFIX_BYTES, TokenAddition,
};
use super::postgres::Postgres;
use super::seal::{KeySource, Seals};
use super::sqlite::Sqlite;
pub use super::sqlite::{FILE, back_up};
use super::{postgres, sqlite};
use crate::config::ClusterSettings;
use crate::wire::secrets::SealSecrets;

/// The open store of a state directory. Clones share it.
#[derive(Clone, Debug)]
pub struct Db {
    dir: Arc<Path>,
    seals: Seals,
    store: Arc<dyn StoreEngine>,
}

impl Db {
    /// [`Self::open_with`] a key in the same directory. In a test of `PostgreSQL` the store is a
    /// database of its server that belongs to this directory.
    #[cfg(any(test, feature = "testing"))]
    pub fn open(dir: &Path) -> Result<Self, DbError> {
        Self::open_keyed(dir, &KeySource { make: true, ..KeySource::default() })
    }

    /// [`Self::open`] with these keys.
    #[cfg(any(test, feature = "testing"))]
    pub fn open_keyed(dir: &Path, key: &KeySource) -> Result<Self, DbError> {
        match postgres::testing::settings_for(dir) {
            Some(settings) => Self::open_cluster(dir, key, &settings),
            None => Self::open_with(dir, key),
        }
    }

    /// Opens the store of this directory, and makes it if it is missing. Some values in it are
    /// sealed with `key`. If the disk takes no writes, the store is only read, and its health says
    /// so. Blocks.
    ///
    /// # Errors
    /// A sentence with the file and the way out.
    pub fn open_with(dir: &Path, key: &KeySource) -> Result<Self, DbError> {
        let seals = Seals::of(dir, key).map_err(DbError::Key)?;
        let store = Arc::new(Sqlite::open(dir.join(FILE), seals.clone())?);
        Ok(Self { dir: Arc::from(dir), seals, store })
    }

    /// Opens the store of a cluster. Some values in it are sealed with `key`, which all replicas
    /// have. Waits for a database that is away as long as the settings say. Blocks.
    ///
    /// # Errors
    /// A sentence with the way out.
    pub fn open_cluster(dir: &Path, key: &KeySource, settings: &ClusterSettings) -> Result<Self, DbError> {
        let seals = Seals::of(dir, key).map_err(DbError::Key)?;
        let store = Arc::new(Postgres::open(settings, seals.clone())?);
        Ok(Self { dir: Arc::from(dir), seals, store })
    }

    /// Opens a store in memory that ends with its last clone; its key is in this directory.
    #[cfg(test)]
    pub fn in_memory(dir: &Path) -> Self {
        let seals = Seals::of(dir, &KeySource { make: true, ..KeySource::default() }).unwrap();
        let store = Arc::new(Sqlite::in_memory(seals.clone()).unwrap());
        Self { dir: Arc::from(dir), seals, store }
    }

    /// Returns whether this directory has a store. Opening a store makes one.
    pub fn is_in(dir: &Path) -> bool {
        dir.join(FILE).exists()
    }

    /// Checks that the store of this directory, which another process has open, is of this
    /// program's version. Changes nothing. Blocks.
    ///
    /// # Errors
    /// A sentence with the file.
    pub fn check_version(dir: &Path) -> Result<(), DbError> {
        sqlite::check_version(&dir.join(FILE))
    }

    /// Counts the sealed values of the store, by the id of their key. Changes nothing, and other
    /// processes may use the store meanwhile. Must not be called in a runtime. Blocks.
    ///
    /// # Errors
    /// When the store cannot be read, or is not of this program's version.
    pub fn count_sealed_values(dir: &Path, cluster: Option<&ClusterSettings>) -> Result<Vec<(String, u64)>, DbError> {
        cluster.map_or_else(|| sqlite::tables::sealed::count_sealed_values(dir), postgres::count_sealed_values)
    }

    /// Reads what the store of a cluster knows of the audit logs of its replicas. Changes nothing,
    /// and waits for no store that is away. Must not be called in a runtime. Blocks.
    ///
    /// # Errors
    /// When the store cannot be read, or is not of this program's version.
    pub fn logs_of_replicas(cluster: &ClusterSettings) -> Result<ReplicaLogs, DbError> {
        postgres::logs_of_replicas(cluster)
    }

    /// Returns the paths of the store's files, some of which may be missing.
    pub fn files_in(dir: &Path) -> impl Iterator<Item = PathBuf> {
        [FILE.to_owned(), format!("{FILE}-wal")].map(|name| dir.join(name)).into_iter()
    }

    /// Returns the state directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns whether any value was left out so far because its key is missing.
    pub fn has_lost(&self) -> bool {
        self.seals.has_lost()
    }

    /// Returns the id of the key that seals; `None` if there is no key.
    pub fn current_key(&self) -> Option<String> {
        self.seals.current_id()
    }

    /// Returns where the keys are that only open.
    pub fn earlier_keys(&self) -> Vec<&'static str> {
        self.seals.earlier_origins()
    }

    /// Derives secrets for that purpose from the keys of the store and its identity; `None` if
    /// there is no key. Blocks.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn secrets(&self, purpose: &str) -> Result<Option<SealSecrets>, DbError> {
        let identity = self.identity().run_now()?;
        Ok(self.seals.secrets(purpose, &identity))
    }
}

impl Deref for Db {
    type Target = dyn StoreEngine;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

#[cfg(test)]
mod tests;
