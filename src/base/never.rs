//! A wait that may have nothing to wait for.

/// Waits for it; for ever where there is none.
pub(crate) async fn or_never<T>(it: Option<impl Future<Output = T>>) -> T {
    match it {
        Some(it) => it.await,
        None => std::future::pending().await,
    }
}
