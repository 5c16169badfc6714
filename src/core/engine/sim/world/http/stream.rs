//! A response of the server in the simulated world.

use crate::engine::sim::world::chance::Pipe;

/// A response of the server: an event stream, of which the server keeps what it said.
pub(super) struct Stream {
    /// The request that it answers.
    pub(super) number: u64,
    /// The request that reads it now.
    pub(super) reader: Option<u64>,
    pub(super) status: u16,
    pub(super) session: Option<u64>,
    pub(super) said: Vec<String>,
    /// How much of that is on its way.
    pub(super) sent: usize,
    pub(super) bytes: Pipe,
    pub(super) ended: bool,
}

impl Stream {
    pub(super) fn of(number: u64, status: u16, session: Option<u64>) -> Self {
        let ended = status == 404;
        let (said, bytes) = (Vec::new(), Pipe::default());
        Self { number, reader: Some(number), status, session, said, sent: 0, bytes, ended }
    }

    /// To a request in a session that the server does not know: each kind of server says so in its own way.
    pub(super) fn unknown(number: u64) -> Self {
        const ERROR: &str = r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request"}}"#;
        if number.is_multiple_of(2) {
            return Self::of(number, 404, None);
        }
        Self { said: vec![ERROR.to_owned()], ended: true, ..Self::of(number, 400, None) }
    }

    pub(super) fn moves(&self) -> bool {
        self.reader.is_some() && (!self.bytes.is_empty() || self.sent < self.said.len() || self.ended)
    }
}
