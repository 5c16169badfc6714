//! End-to-end tests: the real binary between real processes, on real sockets and pipes.
//!
//! `harness`, `setup`, `ground`, `listening`, `process`, `http`, `malformed`, `stdio`, `terminal`,
//! `mcp`, `old_client` and `upstream` are tools for tests; the other modules are the tests.
//! `tests/README.md` lists the requirements for running all of them.
#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking, tells time and prints; helpers outside of #[test] functions do so too"
)]

mod actions;
mod admission;
mod afar;
mod approvals;
mod audit;
mod backup;
mod browser;
mod buffered;
mod calls;
mod children;
mod claims;
mod commands;
mod consent;
mod consenting;
mod console;
mod corpus;
mod credentials;
mod deadlines;
mod demo;
mod disk;
mod doctor;
mod door;
mod ends;
mod faces;
mod failures;
mod files;
mod foreign;
mod fuzz;
mod ground;
mod habit;
mod harness;
mod health;
mod hidden;
mod home_alone;
mod http;
mod import;
mod init;
mod limits;
mod listening;
mod live;
mod login;
mod lookup;
mod mcp;
mod metrics;
mod old_client;
mod operator;
mod package;
mod pins;
mod piped;
mod process;
mod proxy;
mod read_me;
mod reload;
mod revive;
mod screens;
mod sealed;
mod setup;
mod slips;
mod socket;
mod starts;
mod stdio;
mod steps;
mod surroundings;
mod terminal;
mod tidy;
mod tls;
mod units;
mod upgrade;
mod upstream;
