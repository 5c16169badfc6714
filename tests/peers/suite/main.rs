//! The real binary with programs of others: the conformance suite, SDKs, hosts, login servers, a
//! browser, and the reference server.
//!
//! The tools are those of `tests/it`. `tests/README.md` says what is needed to run all of them.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking, tells time and prints; helpers outside of #[test] functions do so too; the tools are those of other tests"
)]

mod asking;
mod bridges;
#[path = "../../it/browser.rs"]
mod browser;
mod conformance;
#[path = "../../it/consenting.rs"]
mod consenting;
#[path = "../../it/ground.rs"]
mod ground;
#[path = "../../it/harness.rs"]
mod harness;
#[path = "../../it/http.rs"]
mod http;
mod input;
mod lazy;
#[path = "../../it/listening.rs"]
mod listening;
#[path = "../../stage/definitions.rs"]
mod malformed;
#[path = "../../it/mcp.rs"]
mod mcp;
#[path = "../../it/old_client.rs"]
mod old_client;
mod peers;
#[path = "../../it/process.rs"]
mod process;
mod reference;
#[path = "../../it/setup.rs"]
mod setup;
mod soak;
mod sse;
#[path = "../../it/stdio.rs"]
mod stdio;
mod tasks;
#[path = "../../it/terminal.rs"]
mod terminal;
#[path = "../../it/upstream.rs"]
mod upstream;
