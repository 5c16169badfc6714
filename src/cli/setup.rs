//! Commands about the configuration, and what they read and write it with.

pub(super) mod add;
pub(super) mod check;
pub(super) mod connect;
pub(super) mod doctor;
mod edit;
mod hosts;
pub(crate) mod import;
pub(super) mod init;
pub(super) mod remove;
pub(super) mod switch;
#[cfg(test)]
mod tests;
