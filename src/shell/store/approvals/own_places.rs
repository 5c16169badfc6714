//! The folders of this machine below which no grant is given.

use std::sync::Arc;

use super::Approvals;
use crate::policy::consent::ReservedFolders;

impl Approvals {
    /// Sets the home directories and headend's own files. Must be called before the first answer.
    pub fn set_places(&self, places: ReservedFolders) {
        let (inner, places) = (&self.inner, Arc::new(places));
        let mut open = inner.lock();
        open.desk.set_places(Arc::clone(&places));
        let grants = inner.grants.load().with_places(places);
        inner.grants.store(Arc::new(grants));
    }
}
