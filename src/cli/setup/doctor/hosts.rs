//! Checks the files of hosts on this machine: servers that a host still starts itself, and entries
//! for headend with a wrong token.

use std::path::Path;

use super::finding::DoctorFindings;
use crate::cli::setup::hosts::{HOSTS, HostFolders, KnownHost};
use crate::cli::setup::import::{HostServerEntry, in_one_form, started};
use crate::config::source::guard;
use crate::config::{ClientAuth, Config, UpstreamTarget, VariableText};

/// Adds findings about each file.
pub(super) fn look(config: &Config, state: Option<&Path>, found: &mut DoctorFindings) {
    let servers = started();
    let mut files: Vec<&Path> = Vec::new();
    for server in &servers {
        if !files.contains(&server.file.as_path()) {
            files.push(&server.file);
        }
    }
    for file in files {
        let of_file = || servers.iter().filter(|server| server.file == file);
        let twice: Vec<(&str, String)> = of_file()
            .filter_map(|server| {
                let spec = config.upstreams.iter().find(|spec| is_same(&spec.target, server))?;
                Some((server.name.as_str(), spec.name.to_string()))
            })
            .collect();
        started_twice(file, &twice, found);
        let others = of_file().filter(|server| !twice.iter().any(|(name, _)| *name == server.name));
        others.for_each(|server| judge_token(config, state, server, found));
    }
}

/// Adds one finding about the servers that a file's host starts itself although they are upstreams
/// here.
fn started_twice(file: &Path, twice: &[(&str, String)], found: &mut DoctorFindings) {
    let (path, file, quoted) = (file, file.display(), |name: &str| format!("{name:?}"));
    let (what, entries) = match twice {
        [] => return,
        [(name, own)] => (format!("{} itself, which is `{own}` here", quoted(name)), format!("entry {}", quoted(name))),
        many => {
            let here = many.iter().map(|(name, own)| format!("{} (`{own}`)", quoted(name))).collect::<Vec<_>>();
            let names = many.iter().map(|(name, _)| quoted(name)).collect::<Vec<_>>();
            (
                format!("{} servers itself that are here too, {}", many.len(), here.join(", ")),
                format!("entries {}", names.join(", ")),
            )
        }
    };
    let folders = HostFolders::from_environment();
    let is_host = |host: &&KnownHost| {
        host.is_edited && folders.as_ref().and_then(|folders| host.user_file(folders)).is_some_and(|own| own == path)
    };
    let connect = HOSTS.iter().find(is_host).map(|host| format!("run `headend connect {} --move`, or ", host.id));
    let next = format!(
        "{}take the {entries} out of {file} and restart that host; it reaches them by its entry for headend",
        connect.unwrap_or_default()
    );
    found.problem("host", format!("{file} still starts {what}: those calls pass no policy and no log"), next);
}

/// Adds a finding if an entry leads to this gateway with a wrong token.
fn judge_token(config: &Config, state: Option<&Path>, server: &HostServerEntry, found: &mut DoctorFindings) {
    let (file, name) = (server.file.display(), &server.name);
    if server.url.as_deref().is_some_and(|url| leads_here(config, url)) && refuses(config, state, server) {
        let token = state.map(|dir| dir.join("token").display().to_string()).unwrap_or_default();
        let what = format!("the entry {name:?} of {file} sends headend a token that it does not know");
        let next = format!(
            "write `Authorization: Bearer` and the content of {token} (`cat {token}`) into that entry's headers"
        );
        found.problem("host", what, next);
    }
}

/// Returns true if an upstream is the server that a host starts or reaches.
fn is_same(target: &UpstreamTarget, server: &HostServerEntry) -> bool {
    let is_url = |own: &str| {
        server.url.as_deref().is_some_and(|theirs| own.trim_end_matches('/') == theirs.trim_end_matches('/'))
    };
    match target {
        UpstreamTarget::Http { url, .. } => is_url(url.as_str()),
        UpstreamTarget::Stdio { command, .. } => {
            [VariableText::expose, VariableText::written].into_iter().any(|text| {
                let (words, url) = in_one_form(command.iter().map(|word| text(word).to_owned()).collect());
                url.is_some_and(|url| is_url(&url)) || !words.is_empty() && starts_the_same(&words, &server.words)
            })
        }
    }
}

/// Returns true if two command lines start the same program, by name or path, with the same
/// arguments. `-y` is ignored.
fn starts_the_same(ours: &[String], theirs: &[String]) -> bool {
    let plain = |words: &[String]| -> Vec<String> {
        let name = words.first().and_then(|word| word.rsplit('/').next()).map(str::to_owned);
        let rest = words.iter().skip(1).filter(|word| !matches!(word.as_str(), "-y" | "--yes")).cloned();
        name.into_iter().chain(rest).collect()
    };
    plain(ours) == plain(theirs)
}

/// Returns true if a URL is that of our own endpoint.
fn leads_here(config: &Config, url: &str) -> bool {
    let Ok(url) = url::Url::parse(url) else { return false };
    let is_here = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    is_here && config.server.listen.iter().any(|address| Some(address.port()) == url.port_or_known_default())
}

/// Returns true if an entry for headend has a bearer token that is none of ours. A token that the
/// host fills in is not judged.
fn refuses(config: &Config, state: Option<&Path>, server: &HostServerEntry) -> bool {
    let ClientAuth::Token { tokens } = &config.server.auth else { return false };
    // A token that is none of ours may be a JWT.
    if server.is_filled_in || config.server.jwt.is_some() {
        return false;
    }
    let sent =
        server.authorization.as_deref().and_then(|sent| sent.split_once(' ')).map_or("", |(_, token)| token.trim());
    let own = state.and_then(|dir| guard::read_regular(&dir.join("token"), guard::MAX_KEY).ok());
    // Before the first start there is no token to compare with.
    let Some(own) = own else { return false };
    sent != own.trim() && !tokens.iter().any(|(_, token)| token.expose() == sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_server_is_known_by_its_command() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let ours = words(&["npx", "-y", "server-files", "/srv"]);
        assert!(starts_the_same(&ours, &words(&["/usr/bin/npx", "server-files", "/srv"])));
        assert!(!starts_the_same(&ours, &words(&["npx", "-y", "server-files", "/home"])));
        assert!(!starts_the_same(&ours, &words(&["uvx", "server-files", "/srv"])));
    }
}
