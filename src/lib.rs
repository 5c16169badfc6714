#![doc = include_str!("ARCHITECTURE.md")]

mod catalog;
mod config;
mod engine;
mod mcp;
mod policy;
mod runtime;
mod telemetry;
mod wire;
