#![doc = include_str!("ARCHITECTURE.md")]

mod catalog;
mod engine;
mod mcp;
mod policy;
mod wire;
