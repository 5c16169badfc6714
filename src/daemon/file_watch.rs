//! Watches the configuration file for changes, by its directory, since editors replace files.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// Editors write in several steps: the file is read when it has been quiet for so long.
pub(crate) const QUIET: Duration = Duration::from_millis(250);

/// Watches until dropped.
#[derive(Debug)]
pub(crate) struct FileWatch {
    _watcher: RecommendedWatcher,
    pub(crate) dirty: Arc<Notify>,
}

impl FileWatch {
    /// Watches the directory of `path`.
    ///
    /// # Errors
    /// When the system has no inotify watch left or the directory is missing; reload by signal still works.
    pub(crate) fn start(path: &Path) -> notify::Result<Self> {
        let dirty = Arc::new(Notify::new());
        let flag = Arc::clone(&dirty);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| !event.kind.is_access()) {
                flag.notify_one();
            }
        })?;
        let directory = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        watcher.watch(directory, RecursiveMode::NonRecursive)?;
        Ok(Self { _watcher: watcher, dirty })
    }
}
