//! Tests of the whole gateway on a stage.

mod admission;
mod asking;
mod buffered;
mod calls;
mod claims;
mod codings;
mod first;
mod gone;
mod hidden;
mod hints;
mod lazy;
mod limits;
mod lists;
mod malformed;
mod metrics;
mod order;
mod revive;
mod rules;
mod sse;
mod tasks;
mod voice;
