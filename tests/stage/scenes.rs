//! Tests of the whole gateway on a stage.

mod apps;
mod apps_everywhere;
mod calls;
mod clients;
mod cluster;
mod console;
mod first;
mod health;
mod instructions;
mod judged;
mod jwt;
mod metrics;
mod reload;
mod routes;
mod servers;
mod world;
