//! A request of a client until its answer: its place among the client's open ones, and its cancellation.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::engine::client::Client;
use crate::wire::id::{ClientId, IdKey};

/// One client's side of the protocol, shared by its connections and calls. Locked for one step at a time.
pub(crate) type Protocol = Arc<Mutex<Client<CancellationToken>>>;

/// An open request. Its id is free again when the value is dropped.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    client: Protocol,
    key: IdKey,
    /// Fires when the client withdraws the request.
    pub cancelled: CancellationToken,
}

impl OpenRequest {
    /// For a request that the client has entered, with its ticket.
    pub(crate) fn new(client: &Protocol, id: &ClientId, ticket: CancellationToken) -> Self {
        Self { client: Arc::clone(client), key: id.key(), cancelled: ticket }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.client.lock().close(&self.key);
    }
}
