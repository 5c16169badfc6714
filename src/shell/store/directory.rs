//! The state directory and its small files: the access tokens, and the catalogs that upstreams had
//! when they last ran.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;

use crate::base::clock;
use crate::catalog::inventory::Inventory;
use crate::catalog::name::{canonical_name, canonical_uri};
use crate::config::source::guard;
use crate::config::{ClusterSettings, UpstreamSettings};
use crate::engine::handshake::EraHint;
use crate::mcp::method::ItemList;
use crate::mcp::version::{Era, Revision};
use crate::store::db::{Db, DbError};
use crate::store::disk::disk_use;
use crate::store::disk::files;
use crate::store::disk::lock;
use crate::store::disk::lock::{LockError, StateLock};
use crate::store::disk::presence;
use crate::store::disk::presence::{OtherGateway, Presence};
use crate::store::seal::{KeySource, Seals};
use crate::telemetry::metrics::DiskUse;
use crate::wire::json::raw::RawJson;

/// A cached verdict that an upstream is legacy expires after this time. A server that learns the
/// modern era still answers `initialize`, so a stale verdict would never show.
const VERDICT_LIFE: Duration = Duration::from_secs(24 * 3600);

/// Time for which the catalog of an upstream that the configuration does not name is kept: another
/// configuration may name it.
const STRAY_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Size limit of a kept catalog file, in bytes.
const MAX_INVENTORY: u64 = 256 << 20;

/// Name of the file with the access token of clients.
pub const TOKEN_FILE: &str = "token";

/// A state directory that was checked, and the source of the key that seals its values.
#[derive(Clone, Debug)]
pub struct StateDir {
    dir: PathBuf,
    key: KeySource,
    /// The cluster whose store is used in place of the directory's database.
    cluster: Option<ClusterSettings>,
}

/// The kept catalog of an upstream from an earlier run.
#[derive(Debug)]
pub struct KeptCatalog {
    pub inventory: Inventory,
    pub revision: Revision,
    pub hint: Option<EraHint>,
}

impl StateDir {
    /// Opens a state directory, and creates it with mode 0700 if it is missing. `key` seals the
    /// values of its database.
    ///
    /// # Errors
    /// A sentence, when the directory cannot be created, or other users may write or own it.
    pub fn open(dir: PathBuf, key: KeySource) -> Result<Self, String> {
        let told = |why: String| format!("the state directory {} {why}", dir.display());
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(|error| told(format!("cannot be made: {error}")))?;
        // Symbolic links on the path are allowed: systemd's DynamicUser= makes them.
        guard::check_directory(&dir, false).map_err(told)?;
        Ok(Self { dir, key, cluster: None })
    }

    /// Uses the store of a cluster, if there is one, in place of the directory's database.
    #[must_use]
    pub fn in_cluster(self, cluster: Option<ClusterSettings>) -> Self {
        Self { cluster, ..self }
    }

    /// Returns whether the store of a cluster is used in place of the directory's database.
    pub const fn is_in_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn has_db(&self) -> bool {
        self.cluster.is_some() || Db::is_in(&self.dir)
    }

    /// Returns the size of the database files and the time of their last write. Blocks.
    pub fn disk_use(&self) -> DiskUse {
        disk_use::measure(Db::files_in(&self.dir))
    }

    /// Opens the database of this directory, or the store of the cluster. Each call opens a new
    /// connection; a process needs one. Blocks.
    ///
    /// # Errors
    /// A sentence with the file and the way out.
    pub fn db(&self) -> Result<Db, DbError> {
        match &self.cluster {
            Some(cluster) => Db::open_cluster(&self.dir, &self.key, cluster),
            None => Db::open_with(&self.dir, &self.key),
        }
    }

    /// Returns a sentence for each key that sealed values of the store need besides the present
    /// one: a key that is configured but only opens, or one that is not here; or the reason why the
    /// store of the cluster cannot be read. Changes nothing. Blocks.
    pub fn doubt_keys(&self) -> Vec<String> {
        if !self.has_db() {
            return Vec::new();
        }
        let Ok(seals) = Seals::of(&self.dir, &KeySource { make: false, ..self.key.clone() }) else { return Vec::new() };
        let counts = match Db::count_sealed_values(&self.dir, self.cluster.as_ref()) {
            Err(error) if self.is_in_cluster() => return vec![error.text_at_end()],
            counts => counts.unwrap_or_default(),
        };
        let current = seals.current_id();
        let others = counts.into_iter().filter(|(key, _)| Some(key) != current.as_ref());
        let places = if self.is_in_cluster() { " on every replica" } else { "" };
        others.map(|(key, count)| describe_other_key(count, &key, seals.origin_of(&key), places)).collect()
    }

    /// Checks that the database of this directory, which another process has open, is of this
    /// program's version. Changes nothing. Blocks.
    ///
    /// # Errors
    /// A sentence with the file.
    pub fn check_version(&self) -> Result<(), DbError> {
        Db::check_version(&self.dir)
    }

    /// Locks the directory against other daemons until the returned value is dropped. Waits a few
    /// seconds for a daemon that is ending.
    ///
    /// # Errors
    /// When another daemon holds the lock.
    pub async fn lock(&self) -> Result<StateLock, LockError> {
        StateLock::take(&self.dir).await
    }

    /// Returns true while a daemon holds the lock of this directory: it starts, runs or ends.
    pub fn has_daemon(&self) -> bool {
        lock::is_held(&self.dir)
    }

    /// Announces this process as a gateway of its own on this directory, by a file that others see
    /// until the returned value is dropped.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn announce(&self) -> io::Result<Presence> {
        Presence::announce(&self.dir)
    }

    /// Lists the gateways of other processes on this directory, except the daemon, and removes the
    /// files of those that have ended.
    pub fn other_gateways(&self) -> Vec<OtherGateway> {
        presence::others(&self.dir)
    }

    /// Returns the access token of clients and the path of its file. Generates the token with mode
    /// 0600 at first use.
    ///
    /// # Errors
    /// When the file can neither be read nor written.
    pub fn token(&self) -> io::Result<(String, PathBuf)> {
        // The operator may let other users read this file, and so connect.
        self.token_in(TOKEN_FILE, guard::SHARED)
    }

    /// Returns the operator's token for the console, which differs from that of clients. Generates
    /// it with mode 0600 at first use.
    ///
    /// # Errors
    /// When the file can neither be read nor written.
    pub fn console_token(&self) -> io::Result<String> {
        self.token_in("console-token", guard::SECRET).map(|(token, _)| token)
    }

    /// Generates a random token.
    pub fn fresh_token() -> String {
        format!("hdnd_{}", BASE64URL_NOPAD.encode(&clock::random::<32>()))
    }

    /// Reads the token in a file, or generates it if the file is missing or holds fewer than 32
    /// bytes. `forbidden` is the mode bits that the file must not have.
    fn token_in(&self, name: &str, forbidden: u32) -> io::Result<(String, PathBuf)> {
        let path = self.dir.join(name);
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{} {error}", path.display()));
        let text = match files::read(&path, forbidden, guard::MAX_KEY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                files::create_once(&self.dir, name, &Self::fresh_token()).map_err(named)?;
                // If several processes make the token at once, the first file wins.
                files::read(&path, forbidden, guard::MAX_KEY)
            }
            found => found,
        };
        let (text, _) = text.map_err(named)?;
        let text = String::from_utf8_lossy(&text);
        if text.trim().len() >= 32 {
            return Ok((text.trim().to_owned(), path));
        }
        let token = Self::fresh_token();
        self.write(name, token.as_bytes())?;
        Ok((token, path))
    }

    /// Reads the kept catalog of the upstream with this key. Logs a file that cannot be read; a
    /// malformed one counts as missing.
    pub fn recall(&self, key: &str) -> Option<KeptCatalog> {
        let path = self.dir.join(inventory_file(key));
        let (text, written) = files::read(&path, guard::SHARED, MAX_INVENTORY)
            .inspect_err(|error| {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(file = %path.display(), why = %error, "the catalog of an upstream's last run cannot be read");
                }
            })
            .ok()?;
        // A malformed file costs a fresh listing and nothing else.
        let (inventory, revision) = Inventory::from_json(&RawJson::checked(text).ok()?)?;
        let age = written.elapsed().ok()?;
        let legacy = revision.era() == Era::Legacy && age < VERDICT_LIFE;
        Some(KeptCatalog { inventory, revision, hint: legacy.then_some(EraHint::Legacy) })
    }

    /// Returns the canonical names of all kept items of these upstreams; `None` unless each of them
    /// has a kept catalog.
    pub fn canonical_names<'a>(&self, upstreams: impl Iterator<Item = &'a UpstreamSettings>) -> Option<Vec<String>> {
        let mut names = Vec::new();
        for upstream in upstreams {
            let inventory = self.recall(&upstream.inventory_key())?.inventory;
            for list in ItemList::ALL {
                names.extend(inventory.items(list).iter().map(|item| match list {
                    ItemList::Tools | ItemList::Prompts => canonical_name(&upstream.name, &item.key),
                    ItemList::Resources | ItemList::Templates => canonical_uri(&upstream.name, &item.key),
                }));
            }
        }
        Some(names)
    }

    /// Keeps the catalog of the upstream with this key for the next start.
    ///
    /// # Errors
    /// When the file cannot be written; the next start then lists anew.
    pub fn remember(&self, key: &str, inventory: &Inventory, revision: Revision) -> io::Result<()> {
        let name = inventory_file(key);
        let text = inventory.to_json(revision);
        // An unchanged file is not rewritten: its modification time is the age of the era's
        // verdict.
        if files::read(&self.dir.join(&name), guard::SHARED, MAX_INVENTORY)
            .is_ok_and(|(old, _)| old == text.bytes().as_ref())
        {
            return Ok(());
        }
        self.write(&name, text.bytes())
    }

    /// Removes the kept catalog of the upstream with this key.
    pub fn forget(&self, key: &str) {
        let path = self.dir.join(inventory_file(key));
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(file = %path.display(), error = %error, "the catalog of a removed upstream stays");
        }
    }

    /// Migrates catalogs that an earlier version kept by launch alone: links each to the upstream
    /// behind a URL that has the launch, or drops it if several upstreams have the launch.
    pub fn adopt_catalogs<'a>(&self, upstreams: impl Iterator<Item = &'a UpstreamSettings>) {
        let mut owners: HashMap<String, Vec<String>> = HashMap::new();
        for upstream in upstreams {
            let (launch, key) = (upstream.launch_identity(), upstream.inventory_key());
            if launch != key {
                owners.entry(launch).or_default().push(key);
            }
        }
        for (launch, keys) in &owners {
            let old = self.dir.join(inventory_file(launch));
            let adopted = match keys.as_slice() {
                [key] => fs::hard_link(&old, self.dir.join(inventory_file(key))),
                _ => Ok(()),
            };
            // A catalog that was kept under the new key already wins, and the old file is removed.
            match adopted {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {}
                Ok(()) | Err(_) => self.forget(launch),
            }
        }
    }

    /// Removes catalogs older than a week that none of these keys names, and temporary files older
    /// than that.
    pub fn forget_strays(&self, keys: &HashSet<String>) {
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let rest = name.to_str().and_then(|name| name.strip_prefix("inventory-"));
            // The temporary file of a write has a random mark behind `.json`.
            let Some((key, mark)) = rest.and_then(|rest| rest.split_once(".json")) else { continue };
            let is_old = entry
                .metadata()
                .and_then(|data| data.modified())
                .is_ok_and(|at| at.elapsed().is_ok_and(|age| age > STRAY_LIFE));
            if is_old && !(mark.is_empty() && keys.contains(key)) {
                drop(fs::remove_file(entry.path()));
            }
        }
    }

    /// Replaces a file atomically: a reader sees the old text or the new one.
    fn write(&self, name: &str, text: &[u8]) -> io::Result<()> {
        let path = self.dir.join(name);
        files::write_and_place(&self.dir, name, text, |fresh| fs::rename(fresh, &path))
    }
}

/// Lists the file names of the kept catalogs in a state directory, sorted.
pub(super) fn list_catalogs(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        // Every name of ours is UTF-8.
        let Ok(name) = entry?.file_name().into_string() else { continue };
        if name.starts_with("inventory-") && name.ends_with(".json") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn inventory_file(key: &str) -> String {
    format!("inventory-{key}.json")
}

/// Describes sealed values of another key than the present one, and says what to do. `origin` is
/// where the operator keeps that key, and `places` says where the configuration is written.
fn describe_other_key(count: u64, key: &str, origin: Option<&str>, places: &str) -> String {
    let values = if count == 1 { "1 value".to_owned() } else { format!("{count} values") };
    origin.map_or_else(
        || {
            format!(
                "{values} of the store are sealed with the key {key}, which is not here, and count as absent; write that key as \
                 `previous-key` in [secrets]{places}, restart, and run `headend secrets rekey`"
            )
        },
        |origin| {
            format!(
                "{values} of the store still need {origin}; run `headend secrets rekey` with the present key in force{places}, and \
                 remove it only then"
            )
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_token_is_made_once_and_readable_by_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let store = StateDir::open(dir.path().join("state"), KeySource::default()).unwrap();
        let (token, path) = store.token().unwrap();
        assert_eq!(store.token().unwrap().0, token);
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn catalogs_of_upstreams_that_are_gone_are_removed_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let store = StateDir::open(dir.path().to_owned(), KeySource::default()).unwrap();
        for launch in ["a", "b", "c"] {
            store.remember(launch, &Inventory::default(), Revision::V2025_06_18).unwrap();
        }
        let old = std::time::UNIX_EPOCH + Duration::from_secs(clock::unix_seconds() - 60) - STRAY_LIFE;
        for name in ["inventory-a.json", "inventory-b.json", "inventory-a.json.0a1b2c3d", "other.json"] {
            let file = fs::OpenOptions::new().append(true).create(true).open(dir.path().join(name)).unwrap();
            file.set_modified(old).unwrap();
        }
        fs::write(dir.path().join("inventory-c.json.0a1b2c3d"), "").unwrap();
        store.forget_strays(&HashSet::from(["a".to_owned()]));
        let mut left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["inventory-a.json", "inventory-c.json", "inventory-c.json.0a1b2c3d", "other.json"]);
        store.forget("c");
        store.forget("none");
        assert!(store.recall("c").is_none() && store.recall("a").is_some());
    }

    #[test]
    fn an_old_catalog_stays_with_the_one_upstream_behind_its_url() {
        let nothing = |_: &Path| Err(io::ErrorKind::NotFound.into());
        let upstreams = |text: &str| crate::config::parse(text, "t", &|_| None, &nothing).unwrap().0.upstreams;
        let wiki = "[upstreams.wiki]\nurl = \"https://wiki.example/mcp\"\n";
        let admin = "[upstreams.wiki-admin]\nurl = \"https://wiki.example/mcp\"\n";
        let local = "[upstreams.local]\ncommand = [\"/bin/true\"]\n";
        for (text, is_adopted) in [(wiki.to_owned(), true), (format!("{wiki}{admin}"), false)] {
            let dir = tempfile::tempdir().unwrap();
            let store = StateDir::open(dir.path().to_owned(), KeySource::default()).unwrap();
            let upstreams = upstreams(&format!("{text}{local}"));
            for upstream in &upstreams {
                store.remember(&upstream.launch_identity(), &Inventory::default(), Revision::V2025_06_18).unwrap();
            }
            store.adopt_catalogs(upstreams.iter());
            for upstream in &upstreams {
                let is_local = upstream.name.as_str() == "local";
                assert_eq!(
                    store.recall(&upstream.inventory_key()).is_some(),
                    is_adopted || is_local,
                    "{}",
                    upstream.name
                );
                assert_eq!(store.recall(&upstream.launch_identity()).is_some(), is_local, "{}", upstream.name);
            }
        }
    }

    #[test]
    fn a_kept_catalog_that_is_a_pipe_or_too_large_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = StateDir::open(dir.path().to_owned(), KeySource::default()).unwrap();
        let huge = fs::File::create(dir.path().join("inventory-huge.json")).unwrap();
        huge.set_len(MAX_INVENTORY + 1).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let pipe = dir.path().join("inventory-pipe.json");
        rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(store.recall("huge").is_none() && store.recall("pipe").is_none());
    }

    #[test]
    fn a_broken_inventory_file_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let store = StateDir::open(dir.path().to_owned(), KeySource::default()).unwrap();
        store.remember("x", &Inventory::default(), Revision::V2025_06_18).unwrap();
        assert_eq!(store.recall("x").unwrap().hint, Some(EraHint::Legacy));
        fs::write(dir.path().join("inventory-x.json"), "{\"version\":").unwrap();
        assert!(store.recall("x").is_none());
    }
}
