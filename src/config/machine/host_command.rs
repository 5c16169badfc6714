//! The command by which a host starts headend. Hosts pass few variables: `HOME`, but none that
//! moves a directory.

use std::path::{Path, PathBuf};

use super::places::{ConfigLocation, locate, state_dir};
use crate::wire::foreign;

/// The command by which a host reaches a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostCommand {
    /// The configuration file and the socket, if a host does not find them by itself.
    named: Option<(Option<PathBuf>, PathBuf)>,
}

impl HostCommand {
    /// Builds the command for a daemon with that configuration file, state directory and socket.
    /// `env` is the daemon's environment, and `uid` its user.
    pub fn of(
        config: Option<&Path>,
        state: &Path,
        socket: &Path,
        env: &dyn Fn(&str) -> Option<String>,
        uid: u32,
    ) -> Self {
        let left = |name: &str| env(name).filter(|_| name == "HOME");
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let (config, socket) = (config.map(absolute), absolute(socket));
        let finds_config =
            config.as_ref().is_none_or(|config| locate(None, &left) == ConfigLocation::File(config.clone()));
        // A host finds the socket by its address in the state directory.
        let runtime = [format!("/run/user/{uid}"), "/run/headend".to_owned()];
        let finds_socket = state_dir(&left).is_some_and(|dir| dir == absolute(state))
            || runtime.iter().any(|dir| Path::new(dir).join("headend.sock") == socket);
        Self { named: (!finds_config || !finds_socket).then_some((config, socket)) }
    }

    /// Returns the command as a line for a shell.
    pub fn line(&self) -> String {
        let quoted = |word: String| if word.starts_with("--") { word } else { foreign::word(&word).into_owned() };
        let words = self.arguments().into_iter().map(quoted);
        std::iter::once("headend".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
    }

    /// Returns the arguments of the command.
    pub fn arguments(&self) -> Vec<String> {
        let mut words = vec!["stdio".to_owned()];
        if let Some((config, socket)) = &self.named {
            for (option, path) in config.iter().map(|config| ("--config", config)).chain([("--socket", socket)]) {
                words.extend([option.to_owned(), path.to_string_lossy().into_owned()]);
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_what_a_host_does_not_find() {
        let home = tempfile::tempdir().unwrap();
        let at = |inside: &str| home.path().join(inside);
        std::fs::create_dir_all(at(".config/headend")).unwrap();
        std::fs::write(at(".config/headend/headend.toml"), "").unwrap();
        let env = |name: &str| match name {
            "HOME" => Some(home.path().display().to_string()),
            "XDG_STATE_HOME" => Some("/elsewhere".to_owned()),
            _ => None,
        };
        let line = |config: Option<PathBuf>, state: &Path, socket: &str| {
            HostCommand::of(config.as_deref(), state, Path::new(socket), &env, 7).line()
        };
        let (own, state) = (at(".config/headend/headend.toml"), at(".local/state/headend"));
        let plain = "headend stdio";
        assert_eq!(line(Some(own.clone()), &state, "/any/where.sock"), plain, "its address is in the state directory");
        assert_eq!(line(None, &state, "/any/where.sock"), plain);
        let moved = Path::new("/elsewhere/headend");
        assert_eq!(line(Some(own.clone()), moved, "/run/user/7/headend.sock"), plain);
        assert_eq!(line(Some(own.clone()), moved, "/run/headend/headend.sock"), plain);
        let named = format!("headend stdio --config {} --socket /any/where.sock", own.display());
        assert_eq!(line(Some(own), moved, "/any/where.sock"), named);
        let named = "headend stdio --config '/my files/h.toml' --socket /run/user/7/headend.sock";
        assert_eq!(line(Some("/my files/h.toml".into()), &state, "/run/user/7/headend.sock"), named);
        assert_eq!(line(None, moved, "/any/where.sock"), "headend stdio --socket /any/where.sock");
    }
}
