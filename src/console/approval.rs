//! The open approvals on the pages, and their cards.

pub(super) mod argument;
pub(super) mod card;
pub(super) mod group_link;
pub(super) mod questions;
