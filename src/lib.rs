#![doc = include_str!("ARCHITECTURE.md")]
// The pure layers are the crate in `src/core`; the others name them as if they were here.
use headend_core::{catalog, engine, mcp, policy, wire};

mod base;
mod cli;
mod config;
mod console;
mod daemon;
mod demo;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod gateway;
mod listener;
mod operator;
mod serve;
#[cfg(test)]
mod stage;
mod store;
mod telemetry;
mod upstream;

/// Runs the command line; the binary is nothing but this.
pub fn main() -> std::process::ExitCode {
    cli::run()
}
