//! Databases for tests, on a server that the test process was given. Without one, stores are files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::Duration;

use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

use crate::config::{ClusterSettings, StoreUrl};
use crate::policy::Digest;

/// Environment variable with the URL of a server, without the name of a database.
const SERVER: &str = "HEADEND_TEST_POSTGRES";

/// Returns the settings of a store for this directory, whose database is made if it is missing;
/// `None` if stores are files. Blocks.
pub(in crate::store) fn settings_for(dir: &Path) -> Option<ClusterSettings> {
    let server = std::env::var(SERVER).ok()?;
    let digest = Digest::of(dir.as_os_str().as_encoded_bytes()).hex();
    let name = format!("t{}", digest.get(..32)?);
    let url = |database: &str| server.replace("/?", &format!("/{database}?"));
    make(url("postgres"), format!("CREATE DATABASE {name} TEMPLATE template0"));
    Some(ClusterSettings {
        store: StoreUrl::parse(&url(&name)).unwrap(),
        name: "test".to_owned(),
        store_wait: Duration::from_secs(30),
        peer_listen: None,
        peer_url: None,
    })
}

/// Runs a statement that makes a database, unless it is there. Uses a thread of its own, since the
/// caller may be in a runtime.
fn make(url: String, statement: String) {
    let made = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
            let made = async {
                match client.batch_execute(&statement).await {
                    Err(error) if error.code() == Some(&SqlState::DUPLICATE_DATABASE) => {}
                    Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {}
                    outcome => outcome.unwrap(),
                }
            };
            tokio::select! {
                () = made => {}
                ended = connection => ended.unwrap(),
            }
        });
    });
    made.join().unwrap();
}
