//! Tests of the whole gateway on a stage.

mod admission;
mod approvals;
mod bounds;
mod calls;
mod consent;
mod faces;
mod fairness;
mod first;
mod hidden;
mod ladder;
mod lazy;
mod killed;
mod limits;
mod lists;
