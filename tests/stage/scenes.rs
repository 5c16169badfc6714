//! Tests of the whole gateway on a stage.

mod calls;
mod failures;
mod faults;
mod first;
mod foreign;
mod health;
mod hidden;
mod inventory;
mod killed;
mod lazy;
mod limits;
mod lists;
mod live;
mod onward;
mod pins;
mod poison;
mod reload;
mod resume;
mod sessions;
