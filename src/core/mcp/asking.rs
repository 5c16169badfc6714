//! Questions of servers to clients, and the answers that clients can give.

pub mod elicitation;
pub(crate) mod imitation;
pub mod input;
pub(super) mod input_error;
pub mod kinds;
