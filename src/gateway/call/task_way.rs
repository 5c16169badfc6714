//! Whether a request may become a task, or is about one.

/// What a modern client's request has to do with tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TaskWay {
    /// The call may become one.
    Passes,
    /// It is about one, which the upstream and the client call so.
    Named { theirs: String, ours: String },
}
