//! The ground of a stage: connections and programs of the gateway that a test plays. On a thread
//! without a stage each is what it is in the program.

pub mod net;
pub mod program;
