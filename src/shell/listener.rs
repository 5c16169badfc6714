//! Handling of a client's TCP connection until its request can be read: which connections are
//! accepted, how slow they may be, and what a request head must contain. All listeners share this
//! code.

/// Defines the `AsyncWrite` methods that a wrapper around another stream forwards to it.
macro_rules! passes_on {
    () => {
        fn is_write_vectored(&self) -> bool {
            self.stream.is_write_vectored()
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(cx)
        }
    };
}

pub mod address;
pub mod body;
pub mod callers;
pub mod challenge;
pub(crate) mod coded;
pub mod connection;
pub mod descriptors;
pub(crate) mod forwarded;
pub(crate) mod frames;
pub mod guard;
pub mod h2;
pub mod lobby;
pub mod pace;
pub mod pieces;
pub mod press;
pub mod reply;
pub mod routes;
pub mod tls;
pub(crate) mod validity;
