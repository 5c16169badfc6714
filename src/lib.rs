#![doc = include_str!("ARCHITECTURE.md")]

mod catalog;
mod cli {
    mod import;
}
mod config;
mod engine;
mod mcp;
mod policy;
mod wire;
