//! Tests of commands, of what they print and of what they write.

pub(super) mod add;
pub(super) mod backup;
pub(super) mod commands;
pub(super) mod demo;
pub(super) mod doctor;
pub(super) mod foreign;
pub(super) mod home_alone;
pub(super) mod import;
pub(super) mod init;
pub(super) mod lookup;
pub(super) mod read_me;
pub(super) mod screens;
