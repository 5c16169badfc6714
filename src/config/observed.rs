//! Which keys the tables of a configuration have, and as what their values are read: what the JSON Schema for editors is made of. Nothing
//! but a test listens.

#[cfg(not(test))]
use serde_json::Value;

/// Told by the cursor over a configuration.
#[cfg(not(test))]
#[derive(Default)]
pub(super) struct Observed(());

#[cfg(not(test))]
impl Observed {
    /// A value is read as one of that JSON Schema.
    pub(super) fn shape(&self, _path: &str, _shape: impl FnOnce() -> Value) {}

    /// The keys of a table are names.
    pub(super) fn names(&self, _path: &str) {}

    /// These are the keys of a table.
    pub(super) fn keys(&self, _path: &str, _keys: &[&'static str]) {}
}

#[cfg(test)]
pub(super) use self::listening::Observed;

#[cfg(test)]
mod listening {
    use std::cell::RefCell;
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::Value;

    #[derive(Default)]
    pub(crate) struct Observed(RefCell<All>);

    /// By key path.
    #[derive(Default)]
    pub(crate) struct All {
        pub(crate) shapes: BTreeMap<String, Vec<Value>>,
        pub(crate) named: BTreeSet<String>,
        pub(crate) keys: BTreeMap<String, BTreeSet<&'static str>>,
    }

    impl Observed {
        pub(crate) fn shape(&self, path: &str, shape: impl FnOnce() -> Value) {
            let (mut all, shape) = (self.0.borrow_mut(), shape());
            let shapes = all.shapes.entry(path.to_owned()).or_default();
            if !shapes.contains(&shape) {
                shapes.push(shape);
            }
        }

        pub(crate) fn names(&self, path: &str) {
            self.0.borrow_mut().named.insert(path.to_owned());
        }

        pub(crate) fn keys(&self, path: &str, keys: &[&'static str]) {
            self.0.borrow_mut().keys.entry(path.to_owned()).or_default().extend(keys);
        }

        pub(crate) fn all(self) -> All {
            self.0.into_inner()
        }
    }
}
