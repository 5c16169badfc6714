//! Files of the state directory beside the database: how they are written, their locks and their
//! sizes.

pub mod address;
pub(super) mod disk_use;
pub(super) mod files;
pub mod lock;
pub mod presence;
