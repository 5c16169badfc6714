//! Logins at the upstreams of the running gateway, for the console.

use std::sync::Arc;

use crate::console::login_desk::{HeldLogin, LoginView};
use crate::gateway::logins::{Begun, PendingLogins, Way};
use crate::gateway::service::Service;
use crate::gateway::snapshot::Handle;

/// The login at an upstream; `None` for one that takes none of a person.
pub(super) fn view(handle: &Handle) -> Option<LoginView> {
    let keeper = handle.keeper.as_ref().filter(|keeper| keeper.takes_person())?;
    let held = keeper.view().map(|view| HeldLogin {
        issuer: view.issuer,
        account: view.account,
        left: view.left.map(|left| left.as_secs()),
    });
    Some(LoginView { is_wanted: handle.health.standing().awaits_login(), held })
}

fn find(service: &Service, name: &str) -> Result<Arc<Handle>, String> {
    let snapshot = service.snapshots.load_full();
    let found = snapshot.handles.iter().find(|handle| handle.name.as_str() == name).cloned();
    found.ok_or_else(|| format!("there is no upstream `{name}`, or it is switched off."))
}

/// Begins a login for the person `by`, and binds it to the browser that gets the cookie.
pub(super) async fn log_in(
    service: &Service,
    logins: &PendingLogins,
    name: &str,
    by: &str,
) -> Result<(Begun, String), String> {
    let handle = find(service, name)?;
    let begun = logins.begin(&handle, Way::Page).await.map_err(|why| format!("{why}."))?;
    tracing::info!(upstream.name = %handle.name, by, "login begun by the operator");
    logins.enter(&begun.id).ok_or_else(|| "too many logins are under way; try again.".to_owned())
}

/// Ends the login at an upstream for the person `by`.
pub(super) async fn log_out(service: &Service, logins: &PendingLogins, name: &str, by: &str) -> Result<String, String> {
    let handle = find(service, name)?;
    let was_there = logins.log_out(&handle).await.map_err(|why| format!("{why}."))?;
    tracing::info!(upstream.name = %handle.name, by, was_there, "logged out by the operator");
    let told =
        if was_there { "Logged out. Its tools stay listed, and wait for a login." } else { "There was no login." };
    Ok(told.to_owned())
}
