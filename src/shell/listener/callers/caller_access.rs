//! A caller together with its access.

use std::sync::Arc;

use crate::base::access::Access;
use crate::policy::Caller;

/// A caller, and its access by a valid credential.
#[derive(Clone, Debug)]
pub struct CallerAccess {
    pub caller: Caller,
    pub access: Arc<Access>,
}
