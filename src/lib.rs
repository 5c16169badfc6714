#![doc = include_str!("ARCHITECTURE.md")]
// Layers of the crates below, which the layers here name as if they were here.
use headend_config as config;
use headend_core::{catalog, engine, login, mcp, policy, wire};
use headend_shell::{base, cluster, gateway, listener, serve, store, telemetry, upstream};

mod cli;
mod console;
mod daemon;
mod demo;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod operator;
#[cfg(test)]
mod stage;

/// Runs the command line; the binary is nothing but this.
pub fn main() -> std::process::ExitCode {
    cli::run()
}
