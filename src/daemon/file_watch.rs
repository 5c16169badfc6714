//! Watches the configuration, `conf.d` and secrets in files for changes: by their directories, since editors replace files, and
//! with every symbolic link on the way, since Kubernetes changes a mounted `ConfigMap` or `Secret` by exchanging the link `..data`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::config::Seen;

/// Editors write in several steps: files are read when they have stayed the same for this long.
const QUIET: Duration = Duration::from_millis(250);
/// Files that keep changing are read after this many times [`QUIET`], 2 s.
const MOST: usize = 8;
/// Links on the way to one file, as many as Linux follows.
const MAX_LINKS: usize = 40;

/// Watches until dropped.
#[derive(Debug, Default)]
pub(crate) struct FileWatch {
    watcher: Option<RecommendedWatcher>,
    places: Arc<Places>,
    dirty: Arc<Notify>,
}

impl FileWatch {
    /// Watches these files and the ways to them, as they are now. A way that is another than before counts as a change, since
    /// nothing has watched it so far.
    pub(crate) fn follow(&mut self, files: &[Seen]) {
        let mut places = Places::default();
        for file in files {
            places.lead_to(file.path());
            if file.is_folder() {
                places.add_all(file.path());
            }
        }
        if places == *self.places {
            return;
        }
        let (places, dirty) = (Arc::new(places), Arc::clone(&self.dirty));
        let wanted = Arc::clone(&places);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| wanted.concerns(&event)) {
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
        self.dirty.notify_one();
    }

    /// Waits for a change of one of the files or of a way to one.
    pub(crate) async fn changed(&self) {
        self.dirty.notified().await;
    }
}

/// Waits until two looks at these files, [`QUIET`] apart, are equal: an editor may be halfway through writing when a change is
/// reported. Returns after [`MOST`] looks in any case.
pub(crate) async fn at_rest(files: &[Seen]) {
    let look = || files.iter().map(Seen::again).collect::<Vec<_>>();
    let mut before = look();
    for _ in 0..MOST {
        sleep(QUIET).await;
        let now = look();
        if now == before {
            return;
        }
        before = now;
    }
}

/// The names that matter, by the directory that has them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Places(BTreeMap<PathBuf, Names>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Names {
    /// Device and inode of the directory: another one of the same name has to be watched anew.
    directory: Option<(u64, u64)>,
    names: BTreeSet<OsString>,
    /// Every name matters.
    all: bool,
}

impl Places {
    /// Adds each link on the way to the file, then the file itself or the first part of its path that is missing.
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

    /// Adds everything in a folder, if it is there.
    fn add_all(&mut self, folder: &Path) {
        if let Ok(folder) = folder.canonicalize() {
            self.directory(&folder).all = true;
        }
    }

    fn add(&mut self, directory: &Path, name: OsString) {
        self.directory(directory).names.insert(name);
    }

    fn directory(&mut self, directory: &Path) -> &mut Names {
        let entry = self.0.entry(directory.to_owned()).or_default();
        entry.directory = std::fs::metadata(directory).ok().map(|data| (data.dev(), data.ino()));
        entry
    }

    fn concerns(&self, event: &notify::Event) -> bool {
        let is_known = |path: &PathBuf| {
            let in_directory = path.parent().and_then(|directory| self.0.get(directory)).zip(path.file_name());
            in_directory.is_some_and(|(entry, name)| entry.all || entry.names.contains(name))
                || self.0.contains_key(path)
        };
        event.need_rescan() || (!event.kind.is_access() && event.paths.iter().any(is_known))
    }
}

/// The parts of a path, the first one last.
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

    /// The places of one file, with directories below `root`.
    fn ways(root: &Path, file: &str) -> Vec<String> {
        let mut places = Places::default();
        places.lead_to(&root.join(file));
        let shown = |(directory, entry): (&PathBuf, &Names)| {
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

    #[tokio::test(start_paused = true)]
    async fn files_that_are_being_written_are_waited_for_but_not_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("headend.toml");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("one");
        let files = config::load(&path).files;
        let editor = async {
            sleep(QUIET - Duration::from_millis(10)).await;
            write("");
            sleep(QUIET / 2).await;
            write("two");
        };
        let reader = async {
            at_rest(&files).await;
            std::fs::read_to_string(&path).unwrap()
        };
        assert_eq!(tokio::join!(reader, editor).0, "two");
        let restless = async {
            for n in 0_u64.. {
                write(&n.to_string());
                sleep(QUIET / 2).await;
            }
        };
        tokio::select! {
            () = at_rest(&files) => {}
            () = restless => {}
        }
    }

    #[test]
    fn a_directory_that_is_made_anew_is_another_way() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("conf");
        let of = |file: &Path| {
            let mut places = Places::default();
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
}
