#![doc = include_str!("ARCHITECTURE.md")]
mod base;
mod catalog;
mod cli;
mod config;
mod console;
mod daemon;
mod demo;
mod engine;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod gateway;
mod listener;
mod mcp;
mod policy;
mod serve;
mod store;
mod telemetry;
mod upstream;
mod wire;

/// Runs the command line; the binary is nothing but this.
pub fn main() -> std::process::ExitCode {
    cli::run()
}
