//! Tests of the whole gateway on a stage.

mod calls;
mod consent;
mod first;
mod hidden;
mod lazy;
mod killed;
mod limits;
mod lists;
