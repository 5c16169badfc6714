//! Tests of the whole gateway on a stage.

mod calls;
mod first;
mod hidden;
mod killed;
mod lazy;
mod limits;
mod lists;
