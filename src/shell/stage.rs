//! The ground of a stage: connections and programs of the gateway that a test plays. Without a stage on its thread, each does
//! what it does in the program.

pub mod net;
pub mod program;
