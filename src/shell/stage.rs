//! Test doubles for the gateway's outgoing connections and child programs. A test installs them for
//! its own thread (a *stage*); on any other thread the real ones are used.

pub mod net;
pub mod program;
pub mod replicas;
