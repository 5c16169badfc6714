//! The surroundings of an upstream's program: variables of headend's own environment, and
//! directories before its `PATH`. Neither is part of a launch.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::policy::UpstreamTrust;

use super::managers;
use crate::model::{ProgramSurroundings, UpstreamDefaults, UpstreamSettings, UpstreamTarget};
use crate::source::expand::is_name;
use crate::source::file::{ConfigNode, ConfigTable};

/// Variables that every program inherits from headend. `PATH` has directories before it, see
/// [`search_path`].
const ALWAYS: &[&str] = &["PATH", "HOME", "LANG", "TMPDIR"];

/// Variables about proxies, inherited without the user and password that a URL may have.
const PROXIES: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "FTP_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "ftp_proxy",
    "no_proxy",
    "npm_config_proxy",
    "npm_config_https_proxy",
    "npm_config_noproxy",
    "NODE_USE_ENV_PROXY",
];

/// Other variables that a program inherits unless its upstream is untrusted. Sockets of agents,
/// containers and displays are not among them: a program that gets one can act for the user.
const USUAL: &[&str] = &[
    // Certificates.
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NIX_SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "NODE_USE_SYSTEM_CA",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "AWS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "npm_config_cafile",
    "UV_NATIVE_TLS",
    "UV_SYSTEM_CERTS",
    "DENO_CERT",
    "DENO_TLS_CA_STORE",
    // Language, formats, time zone.
    "LANGUAGE",
    "LC_ALL",
    "LC_ADDRESS",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_IDENTIFICATION",
    "LC_MEASUREMENT",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NAME",
    "LC_NUMERIC",
    "LC_PAPER",
    "LC_TELEPHONE",
    "LC_TIME",
    "TZ",
    // Folders. XDG_RUNTIME_DIR holds sockets.
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_CONFIG_DIRS",
    "XDG_DATA_DIRS",
    // Package caches: in a hardened service no other folder may be writable.
    "npm_config_cache",
    "NPM_CONFIG_CACHE",
    "UV_CACHE_DIR",
    "PIP_CACHE_DIR",
    "YARN_CACHE_FOLDER",
    "BUN_INSTALL_CACHE_DIR",
    "DENO_DIR",
    "COREPACK_HOME",
    "GOCACHE",
    "GOMODCACHE",
    // Homes of the version managers, in which their programs look for each other.
    "NVM_DIR",
    "VOLTA_HOME",
    "PYENV_ROOT",
    "MISE_DATA_DIR",
];

/// A function that returns a variable of our environment; a name that cannot be one has no value.
pub(crate) type EnvironmentLookup<'a> = dyn Fn(&str) -> Option<OsString> + 'a;

/// Reads the `[defaults]` table.
pub(crate) fn defaults(table: Option<ConfigTable<'_>>) -> UpstreamDefaults {
    let Some(mut table) = table else { return UpstreamDefaults::default() };
    let defaults = UpstreamDefaults {
        env_from: table.take("env-from").map(|node| names(&node)).unwrap_or_default(),
        path: table.take("path").map(|node| directories(&node)),
    };
    table.finish();
    defaults
}

/// Reads `env-from` and `path`, and adds the entries of `[defaults]`. The table of a remote server
/// was refused both keys before.
pub(crate) fn read(
    table: &mut ConfigTable<'_>,
    http: bool,
    trust: UpstreamTrust,
    defaults: &UpstreamDefaults,
) -> ProgramSurroundings {
    if http {
        return ProgramSurroundings::default();
    }
    let mut env_from = table.take("env-from").map(|node| names(&node)).unwrap_or_default();
    if trust != UpstreamTrust::Untrusted {
        add(&mut env_from, &defaults.env_from);
    }
    let path = table.take("path").map(|node| directories(&node));
    // An empty list says that no directories are put before the PATH.
    if path.as_ref().is_some_and(Vec::is_empty) {
        return ProgramSurroundings { env_from, path: Vec::new(), managers: false };
    }
    let mut path = path.unwrap_or_default();
    add(&mut path, defaults.path.as_deref().unwrap_or_default());
    ProgramSurroundings { env_from, path, managers: !defaults.path.as_ref().is_some_and(Vec::is_empty) }
}

/// Appends the elements that the list does not have yet.
fn add<T: Clone + PartialEq>(own: &mut Vec<T>, more: &[T]) {
    for one in more {
        if !own.contains(one) {
            own.push(one.clone());
        }
    }
}

/// Reads names of variables.
fn names(node: &ConfigNode<'_>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for item in node.items("an array of names of variables").unwrap_or_default() {
        let Some(name) = item.string() else { continue };
        if name.contains('*') {
            item.problem("must be the name of one variable: a pattern would pass secrets that come later too");
        } else if !is_name(&name) {
            item.problem("must be the name of a variable of headend's own environment, such as \"SSH_AUTH_SOCK\"; a value is written in `env`");
        } else if names.contains(&name) {
            item.problem("stands here twice");
        }
        names.push(name);
    }
    names
}

/// Reads directories for a `PATH`.
fn directories(node: &ConfigNode<'_>) -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> = Vec::new();
    for item in node.items("an array of directories").unwrap_or_default() {
        let Some(directory) = item.home_path() else { continue };
        if directory.as_os_str().as_encoded_bytes().contains(&b':') {
            item.problem("must not contain `:`, which separates the directories of a PATH");
        } else if directories.contains(&directory) {
            item.problem("stands here twice");
        }
        directories.push(directory);
    }
    directories
}

/// Returns the variables that the program of an upstream inherits, except `PATH`: the ones it
/// always gets, and the named ones.
pub fn inherited_variables(spec: &UpstreamSettings, env: &EnvironmentLookup<'_>) -> [Vec<(String, OsString)>; 2] {
    let found = |name: &str| Some((name.to_owned(), env(name)?));
    let named: Vec<_> = spec.surroundings.env_from.iter().filter_map(|name| found(name)).collect();
    let is_other = |name: &str| name != "PATH" && !spec.surroundings.env_from.iter().any(|named| named == name);
    let (usual, proxies) = if spec.trust == UpstreamTrust::Untrusted { (&[][..], &[][..]) } else { (USUAL, PROXIES) };
    let plain = ALWAYS.iter().chain(usual).filter(|name| is_other(name)).filter_map(|name| found(name));
    let proxies = proxies.iter().filter(|name| is_other(name)).filter_map(|name| {
        let (name, value) = found(name)?;
        Some((name, strip_credentials(value.to_str()?)?.into()))
    });
    [plain.chain(proxies).collect(), named]
}

/// Returns the URL of a proxy without user and password; `None` if it is uncertain which part they
/// are.
fn strip_credentials(proxy: &str) -> Option<String> {
    let (scheme, rest) = match proxy.find("://") {
        Some(at) => proxy.split_at(at + 3),
        None => ("", proxy),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let shown = format!("{scheme}{host}{path}");
    (!shown.contains('@')).then_some(shown)
}

/// Returns the `PATH` of an upstream's program: the directories of `path`, those of version
/// managers, then the `PATH` in its `env`, else ours. No version managers are put before a `PATH`
/// in `env`.
pub fn search_path(spec: &UpstreamSettings, managers: bool, env: &EnvironmentLookup<'_>) -> Option<OsString> {
    let UpstreamTarget::Stdio { env: own, .. } = &spec.target else { return None };
    let stated = own.iter().rfind(|(name, _)| name == "PATH").map(|(_, value)| OsString::from(value.expose()));
    let managers = managers && spec.surroundings.managers && stated.is_none();
    let base = stated.or_else(|| env("PATH"));
    let mut before = spec.surroundings.path.clone();
    let there: Vec<PathBuf> = base.as_deref().map(|base| std::env::split_paths(base).collect()).unwrap_or_default();
    if managers {
        let known = [before.as_slice(), &there].concat();
        before.extend(managers::directories(&|name| env(name)?.into_string().ok(), &known));
    }
    if before.is_empty() {
        return base;
    }
    // Only a directory with `:` in its name cannot be joined, and no entry of the PATH has one.
    std::env::join_paths(before.into_iter().chain(there)).ok().or(base)
}

#[cfg(test)]
mod tests;
