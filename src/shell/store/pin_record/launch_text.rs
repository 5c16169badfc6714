//! The text of a launch, whose digest is pinned: the words of the configuration, and the program
//! that they lead to.

use std::path::{Path, PathBuf};

use crate::config::{UpstreamSettings, UpstreamTarget, is_same_place};
use crate::wire::canonical::canonicalize;
use crate::wire::json::raw::{RawJson, RawObject};

/// Builds the canonical text of a launch: the words of the configuration, and the program that they
/// lead to.
pub(in crate::store) fn describe_launch(spec: &UpstreamSettings, program: Option<&Path>) -> String {
    let mut out = RawObject::default();
    match &spec.target {
        UpstreamTarget::Stdio { command, .. } => {
            out.set("command", RawJson::list(command.iter().map(|word| RawJson::string(word.written()))));
            if let Some(program) = program {
                let word = command.first().filter(|word| spec.target.hides_program(word));
                let program = word.map_or_else(|| program.to_string_lossy(), |word| word.written().into());
                out.set("program", RawJson::string(&program));
            }
        }
        UpstreamTarget::Http { transport, .. } => {
            out.set("transport", RawJson::string(transport.into_str()));
            out.set("url", RawJson::string(&spec.target.shown_url().unwrap_or_default()));
        }
    }
    text(&out)
}

fn text(object: &RawObject) -> String {
    let encoded = object.encode();
    let canonical = canonicalize(&encoded).ok().and_then(|text| String::from_utf8(text.into_owned()).ok());
    canonical.unwrap_or_else(|| encoded.text().into_owned())
}

/// Parses the stored text of a launch.
fn read(launch: &str) -> Option<RawObject> {
    RawObject::parse(&RawJson::checked(launch.to_owned()).ok()?).ok()
}

/// Returns the part of a launch's text that comes from the configuration.
pub(in crate::store) fn configured_part(launch: &str) -> String {
    read(launch).map_or_else(
        || launch.to_owned(),
        |mut object| {
            object.remove("program");
            text(&object)
        },
    )
}

/// Returns true if two launches have the same words and lead to the same program, or to versions of
/// it below one of the folders.
pub(super) fn is_equivalent(one: &str, other: &str, folders: &[PathBuf]) -> bool {
    let program = |launch: &str| read(launch).and_then(|object| object.string("program"));
    let (Some(from), Some(to)) = (program(one), program(other)) else { return false };
    configured_part(one) == configured_part(other) && is_same_place(Path::new(&*from), Path::new(&*to), folders)
}

/// Returns true if a launch's text must be sealed: the query of a URL may hold a secret.
pub fn is_private(launch: &str) -> bool {
    let url = read(launch).and_then(|object| object.string("url"));
    url.is_some_and(|url| url.contains('?'))
}
