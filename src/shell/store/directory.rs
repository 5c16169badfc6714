//! Small files in the state directory: the access tokens, and the catalogs of upstreams' last runs.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;

use crate::base::clock;
use crate::catalog::inventory::Inventory;
use crate::catalog::name::{canonical, canonical_uri};
use crate::config::{Upstream, guard};
use crate::engine::handshake::EraHint;
use crate::mcp::method::List;
use crate::mcp::version::{Era, Revision};
use crate::store::db::{Db, DbError};
use crate::store::disk_use;
use crate::store::files;
use crate::store::lock::{self, LockError, StateLock};
use crate::store::presence::{self, OtherGateway, Presence};
use crate::store::seal::KeySource;
use crate::telemetry::metrics::DiskUse;
use crate::wire::raw::RawJson;

/// A legacy verdict is asked again after this time: a server that learns the modern era still answers `initialize`, so a stale
/// verdict would never show.
const VERDICT_LIFE: Duration = Duration::from_secs(24 * 3600);

/// The catalog of an upstream that this configuration does not name is kept so long: another one may name it.
const STRAY_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Largest kept catalog of an upstream, in bytes.
const MAX_INVENTORY: u64 = 256 << 20;

/// The file of the access token.
pub const TOKEN_FILE: &str = "token";

/// The state directory.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    key: KeySource,
}

/// The catalog of an upstream from an earlier run.
#[derive(Debug)]
pub struct Remembered {
    pub inventory: Inventory,
    pub revision: Revision,
    pub hint: Option<EraHint>,
}

impl Store {
    /// Opens the directory, made with mode 0700 if it is missing. `key` is what its values are sealed with.
    ///
    /// # Errors
    /// A sentence when it cannot be made, or others may write or own it.
    pub fn open(dir: PathBuf, key: KeySource) -> Result<Self, String> {
        let told = |why: String| format!("the state directory {} {why}", dir.display());
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(|error| told(format!("cannot be made: {error}")))?;
        // Links may lead there, as systemd's DynamicUser= lays them.
        guard::directory(&dir, false).map_err(told)?;
        Ok(Self { dir, key })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the directory has a database.
    pub fn has_db(&self) -> bool {
        Db::is_in(&self.dir)
    }

    /// The size of the database and the time of its last write. Blocks.
    pub fn disk_use(&self) -> DiskUse {
        disk_use::measure(Db::files_in(&self.dir))
    }

    /// Opens the database of this directory. Each call opens it anew: one process needs it once. Blocks.
    ///
    /// # Errors
    /// A sentence with the file and the way out.
    pub fn db(&self) -> Result<Db, DbError> {
        Db::open_with(&self.dir, &self.key)
    }

    /// Keeps other daemons out of this directory for as long as the value lives.
    ///
    /// # Errors
    /// When another one runs with it.
    pub async fn lock(&self) -> Result<StateLock, LockError> {
        StateLock::take(&self.dir).await
    }

    /// Whether a daemon has this directory: one that runs, that starts or that ends.
    pub fn has_daemon(&self) -> bool {
        lock::is_held(&self.dir)
    }

    /// Shows this process to others, as a gateway of its own on this directory.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn announce(&self) -> io::Result<Presence> {
        Presence::announce(&self.dir)
    }

    /// The gateways of other processes that run on this directory, the daemon aside.
    pub fn other_gateways(&self) -> Vec<OtherGateway> {
        presence::others(&self.dir)
    }

    /// The access token and the file that holds it, generated at first use with mode 0600.
    ///
    /// # Errors
    /// When the file can neither be read nor written.
    pub fn token(&self) -> io::Result<(String, PathBuf)> {
        // Users whom the operator lets read it may connect.
        self.token_in(TOKEN_FILE, guard::SHARED)
    }

    /// The operator's token for the console, generated at first use with mode 0600. Clients hold the other one.
    ///
    /// # Errors
    /// When the file can neither be read nor written.
    pub fn console_token(&self) -> io::Result<String> {
        self.token_in("console-token", guard::SECRET).map(|(token, _)| token)
    }

    /// A fresh random token.
    pub fn fresh_token() -> String {
        format!("hdnd_{}", BASE64URL_NOPAD.encode(&clock::random::<32>()))
    }

    fn token_in(&self, name: &str, forbidden: u32) -> io::Result<(String, PathBuf)> {
        let path = self.dir.join(name);
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{} {error}", path.display()));
        let text = match files::read(&path, forbidden, guard::MAX_KEY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                files::make_once(&self.dir, name, &Self::fresh_token()).map_err(named)?;
                // The file of the first process, if several made one.
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

    /// The catalog of an upstream with this key when it was last seen.
    pub fn recall(&self, key: &str) -> Option<Remembered> {
        let path = self.dir.join(inventory_file(key));
        let (text, written) = files::read(&path, guard::SHARED, MAX_INVENTORY)
            .inspect_err(|error| {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(file = %path.display(), why = %error, "the catalog of an upstream's last run cannot be read");
                }
            })
            .ok()?;
        // A file that this program did not write whole is ignored, which costs a fresh listing.
        let (inventory, revision) = Inventory::from_json(&RawJson::checked(text).ok()?)?;
        let age = written.elapsed().ok()?;
        let legacy = revision.era() == Era::Legacy && age < VERDICT_LIFE;
        Some(Remembered { inventory, revision, hint: legacy.then_some(EraHint::Legacy) })
    }

    /// The canonical names of all items of the last run; `None` unless every upstream has them.
    pub fn canonical_names<'a>(&self, upstreams: impl Iterator<Item = &'a Upstream>) -> Option<Vec<String>> {
        let mut names = Vec::new();
        for upstream in upstreams {
            let inventory = self.recall(&upstream.inventory_key())?.inventory;
            for list in List::ALL {
                names.extend(inventory.items(list).iter().map(|item| match list {
                    List::Tools | List::Prompts => canonical(&upstream.name, &item.key),
                    List::Resources | List::Templates => canonical_uri(&upstream.name, &item.key),
                }));
            }
        }
        Some(names)
    }

    /// Keeps what an upstream offers.
    ///
    /// # Errors
    /// When the file cannot be written; the next start then lists anew.
    pub fn remember(&self, key: &str, inventory: &Inventory, revision: Revision) -> io::Result<()> {
        let name = inventory_file(key);
        let text = inventory.to_json(revision);
        // Not rewritten when nothing changed, so that the file's date stays the date of the era's verdict.
        if files::read(&self.dir.join(&name), guard::SHARED, MAX_INVENTORY)
            .is_ok_and(|(old, _)| old == text.bytes().as_ref())
        {
            return Ok(());
        }
        self.write(&name, text.bytes())
    }

    /// Removes the catalog of an upstream that is not configured any more.
    pub fn forget(&self, key: &str) {
        let path = self.dir.join(inventory_file(key));
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(file = %path.display(), error = %error, "the catalog of a removed upstream stays");
        }
    }

    /// Gives each catalog of a version that kept it by launch alone to the upstream with that
    /// launch, behind a URL; removes one that several of these have.
    pub fn adopt_catalogs<'a>(&self, upstreams: impl Iterator<Item = &'a Upstream>) {
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
            // A catalog that was kept since then stays, and the old one goes.
            match adopted {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {}
                Ok(()) | Err(_) => self.forget(launch),
            }
        }
    }

    /// Removes catalogs of a week ago that none of these keys names, and what a process that died
    /// left of one.
    pub fn forget_strays(&self, keys: &HashSet<String>) {
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let rest = name.to_str().and_then(|name| name.strip_prefix("inventory-"));
            // Behind `.json` a file has the mark of the write that it was left by.
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

    /// Writes a file so that a reader sees the old text or the new one.
    fn write(&self, name: &str, text: &[u8]) -> io::Result<()> {
        let path = self.dir.join(name);
        files::with_fresh(&self.dir, name, text, |fresh| fs::rename(fresh, &path))
    }
}

/// Names of the kept catalogs in a state directory.
///
/// # Errors
/// When the directory cannot be read.
pub(super) fn catalogs(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        // A name that is not UTF-8 is not ours.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_token_is_made_once_and_readable_by_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("state"), KeySource::default()).unwrap();
        let (token, path) = store.token().unwrap();
        assert_eq!(store.token().unwrap().0, token);
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn catalogs_of_upstreams_that_are_gone_are_removed_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().to_owned(), KeySource::default()).unwrap();
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
            let store = Store::open(dir.path().to_owned(), KeySource::default()).unwrap();
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
        let store = Store::open(dir.path().to_owned(), KeySource::default()).unwrap();
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
        let store = Store::open(dir.path().to_owned(), KeySource::default()).unwrap();
        store.remember("x", &Inventory::default(), Revision::V2025_06_18).unwrap();
        assert_eq!(store.recall("x").unwrap().hint, Some(EraHint::Legacy));
        fs::write(dir.path().join("inventory-x.json"), "{\"version\":").unwrap();
        assert!(store.recall("x").is_none());
    }
}
