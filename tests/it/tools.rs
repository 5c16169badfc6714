//! Tools for tests: worlds, clients, servers, processes and terminals.

pub(super) mod browser;
pub(super) mod consenting;
pub(super) mod credentials;
pub(super) mod ground;
pub(super) mod harness;
pub(super) mod http;
pub(super) mod listening;
pub(super) mod mcp;
pub(super) mod old_client;
pub(super) mod process;
pub(super) mod setup;
pub(super) mod socket;
pub(super) mod stdio;
pub(super) mod steps;
pub(super) mod terminal;
pub(super) mod upstream;
