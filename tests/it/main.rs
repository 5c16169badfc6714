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

mod commands_at_work;
mod consenting_people;
mod console;
mod corpus;
mod fuzz;
mod life;
mod login;
mod metrics;
mod operator;
mod tidy;
mod tls;
mod tools;
mod traffic;
