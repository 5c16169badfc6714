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
#[path = "../../it/tools/browser.rs"]
mod browser;
mod conformance;
#[path = "../../it/tools/consenting.rs"]
mod consenting;
#[path = "../../it/tools/ground.rs"]
mod ground;
#[path = "../../it/tools/harness.rs"]
mod harness;
#[path = "../../it/tools/http.rs"]
mod http;
mod input;
mod lazy;
#[path = "../../it/tools/listening.rs"]
mod listening;
#[path = "../../stage/definitions.rs"]
mod malformed;
#[path = "../../it/tools/mcp.rs"]
mod mcp;
#[path = "../../it/tools/old_client.rs"]
mod old_client;
mod peers;
mod postgres;
#[path = "../../it/tools/process.rs"]
mod process;
mod reference;
#[path = "../../it/tools/setup.rs"]
mod setup;
mod soak;
mod sse;
#[path = "../../it/tools/stdio.rs"]
mod stdio;
mod tasks;
#[path = "../../it/tools/terminal.rs"]
mod terminal;
#[path = "../../it/tools/upstream.rs"]
mod upstream;
