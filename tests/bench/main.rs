//! The benchmark: an upstream, a floor to compare with, a load generator, and the run that puts the
//! gateway between them.
//!
//! `cargo run --release --example bench -- run --binary target/dist/headend` prints the whole
//! table. Absolute figures move with the machine; ratios within one run, and the gateway's CPU time
//! per call, are what to compare.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of its own: its results go to stdout, its notes to stderr"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "measures with the real clock and ends with its runtime, so nothing is left to drain"
)]

mod answer;
mod auth;
mod budget;
mod floor;
mod gateway;
mod http;
mod load;
mod peers;
mod picture;
mod process;
mod run;
mod scenario;
mod serve;
mod table;
#[cfg(test)]
mod tests;
mod tls;
mod upstream;

use std::io::Read;

use clap::{Parser, Subcommand};

/// Measures an MCP gateway against the same upstream asked directly and through proxies that parse
/// nothing.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct BenchCli {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// A fast MCP server over Streamable HTTP or stdio.
    Upstream(upstream::UpstreamOptions),
    /// A plain hyper reverse proxy that parses nothing.
    Floor(floor::FloorOptions),
    /// One closed-loop load; prints its figures as JSON.
    Load(load::LoadOptions),
    /// The whole table.
    Run(run::RunOptions),
    /// The instructions of a call, counted by callgrind.
    Count(run::instructions::InstructionOptions),
    /// Keeps every CPU busy at idle priority until stdin closes.
    #[command(hide = true)]
    Spin,
}

fn main() -> anyhow::Result<()> {
    match BenchCli::parse().command {
        BenchCommand::Upstream(options) => upstream::main(&options),
        BenchCommand::Floor(options) => floor::main(&options),
        BenchCommand::Load(options) => load::main(&options),
        BenchCommand::Run(options) => run::main(&options),
        BenchCommand::Count(options) => run::until_stopped(run::instructions::main(&options)),
        BenchCommand::Spin => {
            spin();
            Ok(())
        }
    }
}

/// Burns every CPU; the parent sees to the priority.
fn spin() {
    for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
        std::thread::spawn(|| {
            let mut turns = 0_u64;
            loop {
                turns = std::hint::black_box(turns.wrapping_add(1));
            }
        });
    }
    wait_for_eof();
}

/// Ends this process when stdin closes, so that a killed parent leaves nothing behind.
fn exit_at_eof() {
    std::thread::spawn(|| {
        wait_for_eof();
        std::process::exit(0);
    });
}

fn wait_for_eof() {
    let mut sink = [0; 64];
    while std::io::stdin().read(&mut sink).is_ok_and(|read| read > 0) {}
}
