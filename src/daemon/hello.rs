//! The hello, which is the first line in each direction on the admin socket, and the file in the
//! state directory from which clients learn the socket's path.

use std::path::{Path, PathBuf};

use crate::daemon::gateway::RunningGateway;
use crate::serve::late::PassedOrigin;
use crate::store::disk::address::{DaemonAddress, HostBoot};
use crate::wire::json::raw::{RawJson, RawObject};

/// Version of the hello. The daemon refuses a client with a higher version.
pub(super) const HELLO: u64 = 1;

/// The `want` in the hello of a process of our own user that passes a request on.
pub(super) const HTTP: &str = "http";

/// Writes the socket's address into the state directory, for clients whose environment lacks the
/// runtime directory. Returns the address and the state directory, also if the write fails, which
/// is logged; `None` without a state directory.
pub(super) fn publish_address(gateway: &RunningGateway, socket: &Path) -> Option<(DaemonAddress, PathBuf)> {
    let state = gateway.store.as_ref()?.dir().to_owned();
    let address = DaemonAddress::of(socket, HostBoot::own());
    if let Err(error) = address.write(&state) {
        tracing::warn!(error = %error, "the address of the admin socket is not in the state directory: hosts that drop $XDG_RUNTIME_DIR do not find this daemon");
    }
    Some((address, state))
}

/// Returns the socket's path that a daemon of this boot of the machine has written into the state
/// directory.
pub(crate) fn published_socket(state: &Path) -> Option<PathBuf> {
    DaemonAddress::find(state, &HostBoot::own()).map(|address| address.socket)
}

/// The first line in either direction, parsed.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct HelloLine {
    pub(crate) headend: u64,
    #[serde(default)]
    pub(crate) want: String,
    #[serde(default)]
    pub(crate) config: Option<String>,
    /// State directory of the daemon; absent in a client's hello.
    #[serde(default)]
    pub(crate) state: Option<String>,
    #[serde(default)]
    pub(crate) profile: Option<String>,
    #[serde(default)]
    pub(crate) error: Option<String>,
    #[serde(default)]
    pub(crate) version: Option<String>,
    /// True for a relay that answers [`LEAVING`](crate::serve::lines::LEAVING).
    #[serde(default)]
    pub(crate) leaves: bool,
    /// The client's connection of a request that is passed on.
    #[serde(default)]
    pub(crate) origin: Option<PassedOrigin>,
}

/// Encodes a hello without a state directory as one line, with its newline.
pub(crate) fn encode_hello(want: &str, config: Option<&str>, profile: Option<&str>, error: Option<&str>) -> String {
    hello_of(want, &[("config", config), ("profile", profile), ("error", error)])
}

/// Encodes the hello with which another process of our own user passes a request on.
pub(crate) fn encode_passing_hello(origin: &PassedOrigin) -> String {
    let mut line = hello_members(HTTP, &[]);
    line.set_some("origin", serde_json::to_vec(origin).ok().map(RawJson::trusted));
    format!("{}\n", line.encode().text())
}

/// Encodes the hello with which the daemon accepts that of a client.
pub(super) fn encode_accepting_hello(theirs: &HelloLine, config: Option<&str>, state: Option<&str>) -> String {
    hello_of(&theirs.want, &[("config", config), ("state", state), ("profile", theirs.profile.as_deref())])
}

/// Encodes a hello with the version of this program and the given members as one line.
fn hello_of(want: &str, members: &[(&str, Option<&str>)]) -> String {
    format!("{}\n", hello_members(want, members).encode().text())
}

fn hello_members(want: &str, members: &[(&str, Option<&str>)]) -> RawObject {
    let mut line = RawObject::default();
    line.set("headend", RawJson::number(HELLO));
    line.set("want", RawJson::string(want));
    line.set("version", RawJson::string(env!("CARGO_PKG_VERSION")));
    if want == "mcp" {
        line.set("leaves", RawJson::trusted("true"));
    }
    for (name, value) in members {
        line.set_some(name, value.map(RawJson::string));
    }
    line
}
