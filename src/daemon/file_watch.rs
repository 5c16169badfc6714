//! Watches the files of the configuration, including `conf.d` and secrets, for changes.
//!
//! Directories are watched instead of files, since editors replace files, and every symbolic link
//! on the path to a file is watched too, since Kubernetes changes a mounted `ConfigMap` or `Secret`
//! by exchanging the link `..data`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::config::FileFingerprint;

/// Time for which the files must stay unchanged before they are read: editors write in several
/// steps.
const QUIET: Duration = Duration::from_millis(250);
/// Most waits of [`QUIET`] for files that keep changing, 2 s in all; then they are read as they
/// are.
const MOST: usize = 8;
/// Most symbolic links that are followed on the path to one file, as in Linux.
const MAX_LINKS: usize = 40;

/// A watch over the configuration's files, which ends when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct FileWatch {
    watcher: Option<RecommendedWatcher>,
    places: Arc<WatchedFolders>,
    dirty: Arc<Notify>,
    /// True after a watched directory was removed, which ends its watch. A new directory with that
    /// name may have the same inode, so a comparison would not notice it.
    is_blind: Arc<AtomicBool>,
}

impl FileWatch {
    /// Watches these files and every link on the paths to them. If the set of watched names or a
    /// directory differs from before, the next [`Self::changed`] returns without an event, since
    /// changes may have been missed.
    pub(crate) fn follow(&mut self, files: &[FileFingerprint]) {
        let mut places = WatchedFolders::default();
        for file in files {
            places.lead_to(file.path());
            if file.is_folder() {
                places.add_all(file.path());
            }
        }
        if !self.is_blind.swap(false, Ordering::Relaxed) && places == *self.places {
            return;
        }
        let (places, dirty, is_blind) = (Arc::new(places), Arc::clone(&self.dirty), Arc::clone(&self.is_blind));
        let wanted = Arc::clone(&places);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let Ok(event) = event else { return };
            if event.kind.is_remove() && event.paths.iter().any(|path| wanted.0.contains_key(path)) {
                is_blind.store(true, Ordering::Relaxed);
            }
            if wanted.concerns(&event) {
                dirty.notify_one();
            }
        });
        let unwatched = |error: notify::Error| {
            tracing::warn!(error = %error, "a change of the configuration or its secrets may go unnoticed; run `headend reload` after one");
        };
        self.watcher = watcher.map_err(unwatched).ok();
        if let Some(watcher) = &mut self.watcher {
            for directory in places.0.keys() {
                if let Err(error) = watcher.watch(directory, RecursiveMode::NonRecursive) {
                    unwatched(error);
                }
            }
        }
        self.places = places;
        self.again();
    }

    /// Waits for a change, then reads with `look` every [`QUIET`] until two readings are equal,
    /// since an editor may be halfway through writing. Returns the last reading, or `None` if the
    /// files kept changing, see [`MOST`].
    ///
    /// Not cancel-safe: once the first event has arrived, dropping the future loses it, and its
    /// caller must read the files itself.
    pub(crate) async fn changed(&self, look: impl Fn() -> Vec<FileFingerprint>) -> Option<Vec<FileFingerprint>> {
        self.dirty.notified().await;
        let mut before = look();
        for _ in 0..MOST {
            sleep(QUIET).await;
            let now = look();
            if now == before {
                return Some(now);
            }
            before = now;
        }
        None
    }

    /// Makes the next [`Self::changed`] read the files without waiting for an event.
    pub(crate) fn again(&self) {
        self.dirty.notify_one();
    }
}

/// Watched names by the directory that contains them.
#[derive(Debug, Default, PartialEq, Eq)]
struct WatchedFolders(BTreeMap<PathBuf, WatchedNames>);

#[derive(Debug, Default, PartialEq, Eq)]
struct WatchedNames {
    /// Device and inode of the directory. A different directory with the same name needs a new
    /// watch.
    directory: Option<(u64, u64)>,
    names: BTreeSet<OsString>,
    /// True if any name in the directory counts.
    all: bool,
}

impl WatchedFolders {
    /// Adds every symbolic link on the path to the file, then the file itself or the first part of
    /// the path that does not exist.
    fn lead_to(&mut self, file: &Path) {
        let mut at = PathBuf::from("/");
        let mut rest = parts(&std::path::absolute(file).unwrap_or_else(|_| file.to_owned()));
        let mut links = 0;
        while let Some(part) = rest.pop() {
            if part == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&part);
            if let Ok(target) = std::fs::read_link(&next) {
                self.add(&at, part);
                links += 1;
                if links > MAX_LINKS {
                    return;
                }
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                rest.extend(parts(&target));
            } else if next.is_dir() && !rest.is_empty() {
                at = next;
            } else {
                return self.add(&at, part);
            }
        }
    }

    /// Adds all names in a folder, if the folder exists.
    fn add_all(&mut self, folder: &Path) {
        if let Ok(folder) = folder.canonicalize() {
            self.directory(&folder).all = true;
        }
    }

    fn add(&mut self, directory: &Path, name: OsString) {
        self.directory(directory).names.insert(name);
    }

    /// Returns the entry of a directory, which it adds if missing, with the current device and
    /// inode.
    fn directory(&mut self, directory: &Path) -> &mut WatchedNames {
        let entry = self.0.entry(directory.to_owned()).or_default();
        entry.directory = std::fs::metadata(directory).ok().map(|data| (data.dev(), data.ino()));
        entry
    }

    /// Returns true if an event changes a watched name or a watched directory, or if events were
    /// lost.
    fn concerns(&self, event: &notify::Event) -> bool {
        let is_known = |path: &PathBuf| {
            let in_directory = path.parent().and_then(|directory| self.0.get(directory)).zip(path.file_name());
            in_directory.is_some_and(|(entry, name)| entry.all || entry.names.contains(name))
                || self.0.contains_key(path)
        };
        event.need_rescan() || (!event.kind.is_access() && event.paths.iter().any(is_known))
    }
}

/// Splits a path into its parts in reverse order, so that the first part can be popped.
fn parts(path: &Path) -> Vec<OsString> {
    let part = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    let mut parts: Vec<OsString> = path.components().filter_map(part).collect();
    parts.reverse();
    parts
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::config;

    /// Returns the watched names on the path to one file as `directory:name`, relative to `root`.
    fn ways(root: &Path, file: &str) -> Vec<String> {
        let mut places = WatchedFolders::default();
        places.lead_to(&root.join(file));
        let shown = |(directory, entry): (&PathBuf, &WatchedNames)| {
            let directory = directory.strip_prefix(root).unwrap().display().to_string();
            entry.names.iter().map(|name| format!("{directory}:{}", name.display())).collect::<Vec<_>>()
        };
        places.0.iter().flat_map(shown).collect()
    }

    #[test]
    fn every_link_on_the_way_to_a_file_is_watched() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let make = |name: &str| std::fs::create_dir_all(root.join(name)).unwrap();
        let link = |name: &str, target: &str| symlink(target, root.join(name)).unwrap();
        make("mount/..2024_1");
        std::fs::write(root.join("mount/..2024_1/headend.toml"), "").unwrap();
        link("mount/..data", "..2024_1");
        link("mount/headend.toml", "..data/headend.toml");
        make("etc");
        link("etc/conf", "../mount");
        link("etc/loop", "loop");
        link("etc/absolute", root.join("mount").to_str().unwrap());
        let mounted = ["mount:..data", "mount:headend.toml", "mount/..2024_1:headend.toml"];
        assert_eq!(ways(&root, "mount/headend.toml"), mounted);
        assert_eq!(ways(&root, "etc/conf/headend.toml"), [&["etc:conf"], &mounted[..]].concat());
        assert_eq!(ways(&root, "etc/absolute/headend.toml"), [&["etc:absolute"], &mounted[..]].concat());
        assert_eq!(ways(&root, "etc/none/x"), ["etc:none"], "what is missing may come");
        assert_eq!(ways(&root, "etc/x"), ["etc:x"]);
        assert_eq!(ways(&root, "etc/loop/x"), ["etc:loop"]);
    }

    /// Returns the result of [`FileWatch::changed`] while `writer` writes.
    async fn last_look(path: &Path, writer: impl Future<Output = ()>) -> Option<Vec<FileFingerprint>> {
        let watch = FileWatch::default();
        watch.again();
        let look = || config::load(path).files;
        let changed = tokio::time::timeout(QUIET * 20, watch.changed(look));
        tokio::join!(changed, writer).0.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_are_being_written_are_waited_for_but_not_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("headend.toml");
        let part = dir.path().join("conf.d/part.toml");
        std::fs::create_dir(part.parent().unwrap()).unwrap();
        // One file exists and is changed, the other is new.
        for written in [&path, &part] {
            let write = |text: &str| std::fs::write(written, text).unwrap();
            let look = last_look(&path, async {
                sleep(QUIET / 2 - Duration::from_millis(10)).await;
                for text in ["", "[policy]\n", "[policy]\ndefault =", "[policy]\ndefault = \"deny\"\n"] {
                    sleep(QUIET / 2).await;
                    write(text);
                }
            });
            assert_eq!(look.await, Some(config::load(&path).files), "{}", written.display());
        }
        let restless = last_look(&path, async {
            for n in 0..20 {
                std::fs::write(&path, format!("# {n}\n")).unwrap();
                sleep(QUIET / 2).await;
            }
        });
        assert_eq!(restless.await, None);
    }

    #[test]
    fn a_directory_that_is_made_anew_is_another_way() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("conf");
        let of = |file: &Path| {
            let mut places = WatchedFolders::default();
            places.lead_to(file);
            places
        };
        std::fs::create_dir(&inner).unwrap();
        let before = of(&inner.join("x"));
        assert_eq!(before, of(&inner.join("x")));
        std::fs::rename(&inner, dir.path().join("old")).unwrap();
        std::fs::create_dir(&inner).unwrap();
        assert_ne!(before, of(&inner.join("x")));
    }

    #[tokio::test]
    async fn a_directory_that_is_made_anew_is_watched_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("headend.toml");
        let folder = dir.path().join("conf.d");
        let make = || std::fs::create_dir(&folder).unwrap();
        let write = |text: &str| std::fs::write(folder.join("part.toml"), text).unwrap();
        std::fs::write(&path, "").unwrap();
        make();
        write("");
        let look = || config::load(&path).files;
        let mut watch = FileWatch::default();
        watch.follow(&look());
        watch.changed(look).await;
        std::fs::remove_dir_all(&folder).unwrap();
        // On many file systems the new directory has the inode of the old one.
        make();
        write("");
        // The first two changes may be events of the directory itself.
        for n in 0..4 {
            let changed = tokio::time::timeout(Duration::from_secs(60), watch.changed(look));
            assert!(changed.await.is_ok(), "change {n}");
            watch.follow(&look());
            write(&format!("# {n}\n"));
        }
    }
}
