#![doc = include_str!("ARCHITECTURE.md")]
mod catalog;
mod cli;
mod config;
mod demo;
mod engine;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod mcp;
mod policy;
mod runtime;
mod telemetry;
mod wire;

/// Runs the command line; the binary is nothing but this.
pub fn main() -> std::process::ExitCode {
    cli::run()
}
