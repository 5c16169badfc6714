//! Answers of the admin socket.

use crate::wire::raw::{RawJson, RawObject};

/// An object of strings.
pub(super) fn object(members: &[(&str, &str)]) -> RawJson {
    let mut object = RawObject::default();
    for (name, value) in members {
        object.set(name, RawJson::string(value));
    }
    object.encode()
}

pub(super) fn number(value: impl std::fmt::Display) -> RawJson {
    RawJson::trusted(value.to_string())
}
