//! An open request of a client: it occupies its id until it is answered, and can be cancelled.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::engine::client::ClientProtocol;
use crate::wire::id::{ClientId, IdKey};

/// One client's side of the protocol, shared by its connections and calls. Locked for one operation
/// at a time.
pub(crate) type SharedProtocol = Arc<Mutex<ClientProtocol<CancellationToken>>>;

/// An open request. Dropping it frees its id.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    client: SharedProtocol,
    key: IdKey,
    /// Fires when the client cancels the request.
    pub cancelled: CancellationToken,
}

impl OpenRequest {
    /// Creates the handle for a request that was entered in the protocol state, with its ticket.
    pub(crate) fn new(client: &SharedProtocol, id: &ClientId, ticket: CancellationToken) -> Self {
        Self { client: Arc::clone(client), key: id.key(), cancelled: ticket }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.client.lock().close(&self.key);
    }
}
