//! A helper for optional futures in `select!`.

/// Awaits an optional future; without one, never completes.
pub async fn or_never<T>(it: Option<impl Future<Output = T>>) -> T {
    match it {
        Some(it) => it.await,
        None => std::future::pending().await,
    }
}
