//! Definitions of tools, prompts and resources, and what follows from them.

pub mod annotations;
pub mod app;
pub mod app_text;
pub mod claims;
pub mod item;
pub mod weight;
