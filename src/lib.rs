#![doc = include_str!("ARCHITECTURE.md")]
#![allow(dead_code, unused_imports, reason = "what consent needs is taken into use step by step")]

mod catalog;
mod cli;
mod config;
mod demo;
mod engine;
mod mcp;
mod policy;
mod runtime;
mod telemetry;
mod wire;

/// Runs the command line; the binary is nothing but this.
pub fn main() -> std::process::ExitCode {
    cli::run()
}
