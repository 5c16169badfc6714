//! Tests of the whole gateway on a stage.

mod asking;
mod calls;
mod claims;
mod first;
mod gone;
mod hidden;
mod hints;
mod lazy;
mod limits;
mod lists;
mod malformed;
mod order;
mod revive;
mod rules;
mod tasks;
mod voice;
