//! The surroundings of a process on a stage: its environment, and what its commands print.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::config;

thread_local! {
    static PLAYED: RefCell<Option<Surroundings>> = const { RefCell::new(None) };
}

/// An environment, and what was printed in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    pub(crate) variables: HashMap<String, String>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Surroundings {
    pub(crate) fn of(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { variables: variables.into_iter().collect(), ..Self::default() }
    }

    /// Puts this thread into them.
    pub(crate) fn enter(self) {
        config::machine::played::set_test_environment(Some(self.variables.clone()));
        PLAYED.set(Some(self));
    }

    /// Takes this thread out of its surroundings.
    pub(crate) fn leave() -> Self {
        config::machine::played::set_test_environment(None);
        PLAYED.take().unwrap_or_default()
    }
}

/// Keeps what a command prints; `false` where it has no such surroundings.
pub(crate) fn printed(text: &str) -> bool {
    kept(|played| &mut played.stdout, text)
}

/// Keeps what a command prints to stderr; `false` if it has no such surroundings.
pub(crate) fn complained(text: &str) -> bool {
    kept(|played| &mut played.stderr, text)
}

fn kept(place: fn(&mut Surroundings) -> &mut Vec<u8>, text: &str) -> bool {
    PLAYED.with_borrow_mut(|played| {
        let place = played.as_mut().map(place);
        place.map(|place| place.extend_from_slice(text.as_bytes())).is_some()
    })
}
