//! Builds the daemon's status: the gateway's own, plus the addresses, clients and sessions of the
//! program.

use crate::daemon::gateway::RunningGateway;
use crate::operator::status::{AddressesView, OpenApprovalsView, RestoredView, StatusView};
use crate::store::directory::StateDir;
use crate::store::restored::RestoreReview;

/// Builds the status of the gateway and its upstreams, as `headend status --json` prints it, but
/// without the open approvals.
pub(crate) fn build_status(gateway: &RunningGateway) -> StatusView {
    let review = gateway.restore_review.as_ref().and_then(RestoreReview::backup_time);
    let mut status = StatusView {
        config: gateway.source.path.as_ref().map(|path| path.display().to_string()),
        sessions: gateway.sessions.len(),
        addresses: addresses(gateway),
        restored: review.map(RestoredView::new),
        other_gateways: gateway.store.as_ref().map(StateDir::other_gateways).unwrap_or_default(),
        ..StatusView::new(&gateway.service)
    };
    status.set_clients(gateway.service.clients.counted(gateway.sessions.clients()));
    status
}

/// Builds the status with the open approvals of all processes on the same store; without any if the
/// store cannot be read.
pub(super) async fn build_full_status(gateway: &RunningGateway) -> StatusView {
    let rows = gateway.service.approvals.all_approvals().await;
    StatusView { approvals: rows.ok().map(|rows| OpenApprovalsView::from(&*rows)), ..build_status(gateway) }
}

fn addresses(gateway: &RunningGateway) -> AddressesView {
    let socket = gateway.socket.get().map(|path| path.display().to_string());
    let Some(listens) = gateway.addresses.get() else { return AddressesView { socket, ..AddressesView::default() } };
    AddressesView {
        mcp: Some(listens.endpoints.clone()),
        public: gateway.service.snapshots.load().config.public_endpoint(),
        console: listens.console.as_ref().map(|base| format!("{base}/")),
        metrics: listens.metrics_page(),
        socket,
    }
}
