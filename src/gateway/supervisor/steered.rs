//! Orders of the operator about one upstream: start anew, or be off while the process runs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Supervisor;
use crate::catalog::name::UpstreamName;
use crate::upstream::handle::Handle;

impl Supervisor {
    /// Starts an upstream anew whose login has changed, unless it was switched off meanwhile.
    pub(super) fn logged_in(&mut self, name: &str, lists_anew: bool) -> Result<Arc<Handle>, String> {
        if self.config.off.iter().any(|off| off.as_str() == name) {
            return Err(format!("`{name}` is switched off"));
        }
        self.restart(name, lists_anew)
    }

    /// Starts an upstream anew beside the old one, which may finish its calls. Its items stay listed, unless it `lists_anew`.
    pub(super) fn restart(&mut self, name: &str, lists_anew: bool) -> Result<Arc<Handle>, String> {
        let unknown = || format!("there is no upstream `{name}`; `headend status` lists them");
        if self.config.off.iter().any(|off| off.as_str() == name) {
            self.switch(name, true)?;
            let new = self.managed.values().find(|new| new.handle.name.as_str() == name).ok_or_else(unknown)?;
            // A lazy one too.
            new.handle.main.order();
            return Ok(Arc::clone(&new.handle));
        }
        let name = UpstreamName::parse(name).map_err(|_| unknown())?;
        let mut old = self.managed.remove(&name).ok_or_else(unknown)?;
        let (spec, inventory) = (old.handle.spec.load_full(), old.inventory.take());
        let restarts = old.handle.main.restarts.load(Ordering::Relaxed) + 1;
        self.retire(old);
        let inventory = inventory.filter(|_| !lists_anew);
        if let Some(store) = self.parts.store.as_ref().filter(|_| lists_anew) {
            store.forget(&spec.launch_identity());
        }
        self.launch((*spec).clone())?;
        let new = self.managed.get_mut(&name).ok_or_else(unknown)?;
        new.inventory = inventory.or(new.inventory.take());
        new.handle.main.restarts.store(restarts, Ordering::Relaxed);
        new.handle.metrics.restarted();
        // A lazy one too.
        new.handle.main.order();
        let handle = Arc::clone(&new.handle);
        self.publish(true);
        Ok(handle)
    }

    /// Switches an upstream on or off. Its approvals and lists are kept, as for one that the configuration disables.
    pub(super) fn switch(&mut self, name: &str, on: bool) -> Result<(), String> {
        let written = self.written.upstreams.iter().find(|spec| spec.name.as_str() == name);
        let name =
            written.ok_or_else(|| format!("there is no upstream `{name}`; `headend status` lists them"))?.name.clone();
        let mut off = self.config.off.clone();
        off.retain(|one| *one != name);
        if !on {
            off.push(name);
        }
        self.enforce(self.written.clone(), &off).map(drop)
    }
}
