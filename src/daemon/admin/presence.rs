//! Where the daemon can be reached and who is connected, for `status`.

use super::RawObject;
use crate::daemon::gateway::Gateway;
use crate::policy::chain::timestamp;
use crate::store::restored::{self, RestoreReview};
use crate::wire::raw::RawJson;

/// Names of clients that are listed; the others are counted.
const MOST_CLIENTS: usize = 100;

/// Adds addresses, clients, and the review that a restored store waits for.
pub(super) fn add(out: &mut RawObject, gateway: &Gateway) {
    add_addresses(out, gateway);
    add_clients(out, gateway);
    if let Some(backup_time) = gateway.restore_review.as_ref().and_then(RestoreReview::backup_time) {
        let mut restored = RawObject::of_strings(&[("text", &restored::due(backup_time))]);
        let time = timestamp(backup_time.saturating_mul(1000));
        restored.set("backup-time", RawJson::string(&time));
        out.set("restored", restored.encode());
    }
}

/// Adds the addresses that the gateway listens on.
fn add_addresses(out: &mut RawObject, gateway: &Gateway) {
    let mut addresses = RawObject::default();
    if let Some(listens) = gateway.addresses.get() {
        addresses.set("mcp", RawJson::list(listens.endpoints.iter().map(|url| RawJson::string(url))));
        let console = listens.console.as_ref().map(|base| RawJson::string(&format!("{base}/")));
        addresses.set_some("console", console);
        let metrics = listens.metrics.map(|address| RawJson::string(&format!("http://{address}/metrics")));
        addresses.set_some("metrics", metrics);
    }
    let socket = gateway.socket.get().map(|path| RawJson::string(&path.display().to_string()));
    addresses.set_some("socket", socket);
    out.set("addresses", addresses.encode());
}

/// Adds the connected clients by the names that they gave themselves, which nothing proves.
fn add_clients(out: &mut RawObject, gateway: &Gateway) {
    let counted = gateway.service.clients.counted(gateway.sessions.clients());
    let more: usize = counted.iter().skip(MOST_CLIENTS).map(|(.., count)| count).sum();
    let clients = counted.iter().take(MOST_CLIENTS).map(|(caller, name, count)| {
        let mut client = RawObject::of_strings(&[("name", name), ("caller", caller)]);
        client.set("connections", RawJson::number(*count));
        client.encode()
    });
    out.set("clients", RawJson::list(clients));
    if more > 0 {
        out.set("clients-not-shown", RawJson::number(more));
    }
}

/// The status, with the approvals that are open, also those of other processes on the same store.
pub(super) async fn with_approvals(gateway: &Gateway, status: RawJson) -> RawJson {
    let (Ok(rows), Ok(mut out)) = (gateway.service.approvals.all_prompts().await, RawObject::parse(&status)) else {
        return status;
    };
    let now = gateway.service.approvals.wall();
    let mut approvals = RawObject::default();
    approvals.set("open", RawJson::number(rows.len()));
    if let Some(oldest) = rows.iter().map(|row| row.opened_at).min() {
        approvals.set("oldest-seconds", RawJson::number(now.saturating_sub(oldest)));
    }
    out.set("approvals", approvals.encode());
    out.encode()
}
