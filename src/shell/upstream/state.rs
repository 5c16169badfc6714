//! The state of one upstream for operators: its health, its log, and the faults of its messages.

pub(crate) mod flaws;
pub(crate) mod health;
pub(crate) mod http_error;
pub(crate) mod last_words;
pub mod logbook;
pub(crate) mod message_flaws;
mod signs;
pub(crate) mod standing;
pub(crate) mod unread;
