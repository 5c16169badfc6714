//! The operator's service: views and actions for the admin socket, the console and the commands.

pub(crate) mod approvals;
pub(crate) mod logins;
pub(crate) mod logs;
pub(crate) mod pins;
pub(crate) mod request;
pub(crate) mod restart;
pub(crate) mod tool;
pub(crate) mod tools;
pub(crate) mod upstreams;
