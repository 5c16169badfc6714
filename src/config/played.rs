//! The environment that a test plays for its thread.

use std::cell::RefCell;
use std::collections::HashMap;

thread_local! {
    static PLAYED: RefCell<Option<HashMap<String, String>>> = const { RefCell::new(None) };
}

/// Gives this thread those variables in place of the process's, or takes them away again.
pub fn play(variables: Option<HashMap<String, String>>) {
    PLAYED.set(variables);
}

/// A variable: of the environment that this thread plays, or else of the process.
pub(crate) fn variable(name: &str) -> Option<String> {
    PLAYED.with_borrow(|played| match played {
        Some(variables) => variables.get(name).cloned(),
        None => std::env::var(name).ok(),
    })
}
