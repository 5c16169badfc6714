//! An issuer whose JWTs are accepted.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::base::access::IssuerAccess;
use crate::base::task_group::TaskGroup;
use crate::config::IssuerSettings;
use crate::listener::callers::issuer_keys::IssuerKeys;

/// An accepted issuer, its keys, and the access of its callers.
#[derive(Debug)]
pub(in crate::listener) struct JwtIssuer {
    pub(super) settings: IssuerSettings,
    pub(super) keys: Arc<IssuerKeys>,
    pub(super) access: IssuerAccess,
}

impl JwtIssuer {
    /// Creates an issuer whose keys are not known yet. The access of its callers ends when
    /// `giving_up` fires.
    pub(super) fn new(settings: IssuerSettings, tasks: &TaskGroup, giving_up: &CancellationToken) -> Self {
        let keys = Arc::new(IssuerKeys::new(settings.clone(), tasks.clone()));
        let access = IssuerAccess::new(&settings.terms.name, giving_up);
        Self { settings, keys, access }
    }
}
