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
mod killed;
mod ladder;
mod lazy;
mod limits;
mod lists;
