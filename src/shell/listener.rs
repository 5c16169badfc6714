//! A TCP connection until its request can be read: who may connect, how slow it may be, what its head must contain. All
//! listeners share it.

/// What a stream around another one leaves to that in `AsyncWrite`.
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
pub(crate) mod coded;
pub mod connection;
pub mod credentials;
pub mod descriptors;
pub mod guard;
pub mod lobby;
pub mod pace;
pub mod pieces;
pub mod press;
pub mod reply;
