//! Checks for packages that `command` names without a version, and finds the versions that run.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::finding::{DoctorFindings, FindingLevel};
use crate::cli::reach::source::environment;
use crate::config::source::guard;
use crate::config::{Config, UpstreamTarget, split_package, unversioned_package, with_version};
use crate::wire::json::raw::{RawJson, RawObject};

/// Most folders of a cache that are read.
const MOST_FOLDERS: usize = 1000;
/// Size limit of a `package.json`, in bytes.
const MOST_BYTES: u64 = 256 << 10;

/// Adds one finding about all packages without a version.
pub(super) fn look(config: &Config, file: Option<&Path>, found: &mut DoctorFindings) {
    let mut names: Vec<String> = Vec::new();
    let mut known: Vec<String> = Vec::new();
    let mut unknown: Vec<String> = Vec::new();
    for spec in &config.upstreams {
        let UpstreamTarget::Stdio { command, .. } = &spec.target else { continue };
        let words: Vec<String> = command.iter().map(|word| word.written().to_owned()).collect();
        let Some(package) = unversioned_package(&words) else { continue };
        names.push(format!("`{}`", spec.name));
        match running(&words, package) {
            Some(version) => known.push(format!("`{}`", with_version(&words, package, &version))),
            None => unknown.push(format!("`{}`", with_version(&words, package, "VERSION"))),
        }
    }
    if names.is_empty() {
        return;
    }
    let file = file.map(|path| format!("{}: ", path.display())).unwrap_or_default();
    let have = match names.as_slice() {
        [one] => format!("the package of {one} has"),
        many => format!("the packages of {} have", many.join(", ")),
    };
    let what = format!("{file}{have} no version, so what runs can change at any start");
    let mut next = Vec::new();
    if !known.is_empty() {
        next.push(format!("write in `command` what runs now: {}", known.join(", ")));
    }
    if !unknown.is_empty() {
        let unknown = unknown.join(", ");
        next.push(format!("write in `command` a version that you have looked at: {unknown}"));
    }
    found.add(FindingLevel::Warning, "versions", what, next.join("; "));
}

/// Finds the version that a runner has fetched last, which is the one that runs; `None` if it is
/// unknown.
fn running(command: &[String], package: &str) -> Option<String> {
    let package = split_package(package).0;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '@' | '/' | '-' | '_' | '.');
    if !package.chars().all(is_plain) || package.contains("..") {
        return None;
    }
    let home = environment("HOME").map(PathBuf::from);
    match command.first()?.rsplit('/').next()? {
        "npx" => {
            let cache = environment("npm_config_cache").map(PathBuf::from);
            of_npx(&cache.or_else(|| Some(home?.join(".npm")))?.join("_npx"), package)
        }
        "uvx" => {
            let own = environment("UV_CACHE_DIR").map(PathBuf::from);
            let shared = || Some(PathBuf::from(environment("XDG_CACHE_HOME")?).join("uv"));
            of_uvx(&own.or_else(shared).or_else(|| Some(home?.join(".cache/uv")))?.join("archive-v0"), package)
        }
        _ => None,
    }
}

/// Reads the newest `node_modules/PACKAGE/package.json` in the folders that npm keeps for `npx`.
fn of_npx(cache: &Path, package: &str) -> Option<String> {
    let files = folders(cache).map(|folder| folder.join("node_modules").join(package).join("package.json"));
    let (_, newest) = files.filter_map(|file| Some((changed(&file)?, file))).max()?;
    let text = guard::read_regular(&newest, MOST_BYTES).ok()?;
    version(RawObject::parse(&RawJson::checked(text).ok()?).ok()?.string("version")?)
}

/// Finds the newest `PACKAGE-VERSION.dist-info` of uv's unpacked packages.
fn of_uvx(cache: &Path, package: &str) -> Option<String> {
    let name = package.to_ascii_lowercase().replace(['-', '.'], "_") + "-";
    let found = folders(cache).flat_map(|folder| folders(&folder.join("lib"))).flat_map(|python| {
        let infos = folders(&python.join("site-packages"));
        infos.filter_map(|info| {
            let of = info.file_name()?.to_str()?.to_ascii_lowercase();
            let version = of.strip_prefix(&name)?.strip_suffix(".dist-info")?.to_owned();
            Some((changed(&info)?, version))
        })
    });
    version(found.max()?.1)
}

/// Returns a version if it looks like one of the registries, which makes it safe to print.
fn version(text: String) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '!');
    Some(text).filter(|text| (1..=64).contains(&text.len()) && text.chars().all(is_plain))
}

/// Lists the entries of a folder; a missing one has none.
fn folders(of: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = std::fs::read_dir(of).into_iter().flatten().take(MOST_FOLDERS);
    entries.flatten().map(|entry| entry.path())
}

/// Returns the modification time of a file.
fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    fn dated(path: &Path, hour: u64) {
        let file = fs::File::open(path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(hour * 3600)).unwrap();
    }

    #[test]
    fn the_newest_version_that_was_fetched_is_the_one_that_runs() {
        let dir = tempfile::tempdir().unwrap();
        for (folder, number, hour) in [("a", "2026.1.2", 1), ("b", "2026.8.31", 3), ("c", "2025.1.1", 2)] {
            let package = dir.path().join(folder).join("node_modules/@x/files");
            fs::create_dir_all(&package).unwrap();
            let file = package.join("package.json");
            fs::write(&file, format!("{{\"name\":\"@x/files\",\"version\":\"{number}\"}}")).unwrap();
            dated(&file, hour);
        }
        assert_eq!(of_npx(dir.path(), "@x/files").as_deref(), Some("2026.8.31"));
        assert_eq!(of_npx(dir.path(), "@x/other"), None);
        for (folder, info, hour) in
            [("d", "mcp_server_git-2026.1.0.dist-info", 1), ("e", "mcp_server_git-2026.7.10.dist-info", 2)]
        {
            let info = dir.path().join(folder).join("lib/python3.13/site-packages").join(info);
            fs::create_dir_all(&info).unwrap();
            dated(&info, hour);
        }
        assert_eq!(of_uvx(dir.path(), "mcp-server-git").as_deref(), Some("2026.7.10"));
        assert_eq!(of_uvx(dir.path(), "mcp-server"), None);
        assert_eq!(running(&["npx".to_owned()], "../../x"), None);
        assert_eq!(version("1`; rm".to_owned()), None);
    }
}
