//! Records the keys of the tables of a configuration and the types of their values, for the JSON
//! Schema of editors. Records nothing outside of tests.

#[cfg(not(test))]
use serde_json::Value;

/// A recorder that the cursor over a configuration calls.
#[cfg(not(test))]
#[derive(Default)]
pub(crate) struct SchemaRecorder(());

#[cfg(not(test))]
impl SchemaRecorder {
    /// Called when a value is read as described by that JSON Schema.
    pub(crate) fn shape(&self, _path: &str, _shape: impl FnOnce() -> Value) {}

    /// Called when the keys of a table are names.
    pub(crate) fn names(&self, _path: &str) {}

    /// Called with the keys that a table may have.
    pub(crate) fn keys(&self, _path: &str, _keys: &[&'static str]) {}
}

#[cfg(test)]
pub(crate) use self::listening::SchemaRecorder;

#[cfg(test)]
mod listening {
    use std::cell::RefCell;
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::Value;

    #[derive(Default)]
    pub(crate) struct SchemaRecorder(RefCell<SchemaRecords>);

    /// The records by key path.
    #[derive(Default)]
    pub(crate) struct SchemaRecords {
        pub(crate) shapes: BTreeMap<String, Vec<Value>>,
        pub(crate) named: BTreeSet<String>,
        pub(crate) keys: BTreeMap<String, BTreeSet<&'static str>>,
    }

    impl SchemaRecorder {
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

        pub(crate) fn all(self) -> SchemaRecords {
            self.0.into_inner()
        }
    }
}
