//! Small MCP servers that are built in: the upstreams of the default configuration, run as real
//! child processes of the gateway.
//!
//! They use only the protocol vocabulary of the gateway, so they behave like any server that a user
//! could add.

mod lab;
mod notes;
mod server;
mod time;

use self::server::Demo;

/// Names for `headend demo`.
const NAMES: [&str; 3] = ["time", "notes", "lab"];

/// The reason why a demo server failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    #[error("there is no demo server {name:?}; there are {}", NAMES.join(", "))]
    Unknown { name: String },
    #[error("stdin or stdout: {0}")]
    Io(std::io::Error),
}

/// Serves one demo server on stdin and stdout until stdin ends.
///
/// # Errors
/// [`DemoError`].
pub(crate) fn run(name: &str) -> Result<(), DemoError> {
    match name {
        "time" => serve(time::TimeDemo),
        "notes" => serve(notes::NotesDemo::default()),
        "lab" => serve(lab::LabDemo),
        other => Err(DemoError::Unknown { name: other.to_owned() }),
    }
}

fn serve(demo: impl Demo) -> Result<(), DemoError> {
    server::serve(demo, &mut std::io::stdin().lock(), std::io::stdout()).map_err(DemoError::Io)
}

#[cfg(test)]
mod tests;
