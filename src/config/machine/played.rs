//! A stand-in for the environment that a test sets for its thread.

use std::cell::RefCell;
use std::collections::HashMap;

thread_local! {
    static PLAYED: RefCell<Option<HashMap<String, String>>> = const { RefCell::new(None) };
}

/// Sets the variables that this thread sees in place of the process's; `None` removes them.
pub fn set_test_environment(variables: Option<HashMap<String, String>>) {
    PLAYED.set(variables);
}

/// Returns a variable of the stand-in that this thread has, or else of the process.
pub(crate) fn variable(name: &str) -> Option<String> {
    PLAYED.with_borrow(|played| match played {
        Some(variables) => variables.get(name).cloned(),
        None => std::env::var(name).ok(),
    })
}
