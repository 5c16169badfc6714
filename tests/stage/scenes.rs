//! Tests of the whole gateway on a stage.

mod asking;
mod calls;
mod first;
mod hidden;
mod lazy;
mod limits;
mod lists;
