//! Carries out orders to the supervisor: reload, review of pins, and restart, new login or
//! switching off of one upstream.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::order::SupervisorOrder;
use super::{ManagedUpstream, Supervisor};
use crate::base::clock;
use crate::catalog::name::UpstreamName;
use crate::config::Config;
use crate::upstream::session::handle::UpstreamHandle;

/// How long a replaced upstream may finish its calls.
const REPLACE_DRAIN: Duration = Duration::from_secs(10);

impl Supervisor {
    /// Carries out an order and replies once clients see its effect.
    pub(super) fn order(&mut self, order: SupervisorOrder) {
        // Set aside: an order that changes nothing must not wait for a snapshot requested earlier.
        let earlier = self.wanted.take();
        self.carry_out(order);
        earlier.into_iter().for_each(|is_forced| self.publish(is_forced));
    }

    fn carry_out(&mut self, order: SupervisorOrder) {
        match order {
            SupervisorOrder::Apply { config, reply } => {
                // Upstreams that are switched off stay off across reloads.
                let off = self.config.off.clone();
                let has_stored_callers = self.config.has_stored_callers;
                let outcome = self.enforce(Config { has_stored_callers, ..*config }, &off);
                self.parts.metrics.reloaded(outcome.is_ok(), clock::unix_seconds());
                self.answer(reply, outcome);
            }
            SupervisorOrder::AdmitStoredCallers { reply } => {
                let off = self.config.off.clone();
                let outcome = self.enforce(Config { has_stored_callers: true, ..self.written.clone() }, &off);
                self.answer(reply, outcome);
            }
            SupervisorOrder::Review { reply } => {
                self.review();
                self.answer(reply, ());
            }
            SupervisorOrder::Restart { name, reply } => {
                let outcome = self.restart(&name);
                self.answer(reply, outcome);
            }
            SupervisorOrder::Login { name, lists_anew, reply } => {
                let outcome = self.logged_in(&name, lists_anew);
                self.answer(reply, outcome);
            }
            SupervisorOrder::Disable { name, reply } => {
                let outcome = self.switch(&name, false);
                self.answer(reply, outcome);
            }
        }
    }

    /// Restarts an upstream for the operator, or switches it on if it is off.
    pub(super) fn restart(&mut self, name: &str) -> Result<Arc<UpstreamHandle>, String> {
        if !self.is_off(name) {
            return self.anew(name, false);
        }
        self.switch(name, true)?;
        let new = self.managed.values().find(|new| new.handle.name.as_str() == name).ok_or_else(|| unknown(name))?;
        // Starts a lazy upstream too, without waiting for a call.
        new.handle.main.order();
        Ok(Arc::clone(&new.handle))
    }

    /// Restarts an upstream after its login has changed; a switched-off one stays off. `lists_anew`
    /// forgets the lists of the account before.
    pub(super) fn logged_in(&mut self, name: &str, lists_anew: bool) -> Result<Arc<UpstreamHandle>, String> {
        if !self.is_off(name) {
            return self.anew(name, lists_anew);
        }
        let spec = self.written.upstreams.iter().find(|spec| spec.name.as_str() == name);
        if let (Some(store), Some(spec), true) = (&self.parts.store, spec, lists_anew) {
            store.forget(&spec.inventory_key());
        }
        Err(format!("`{name}` is switched off; `headend restart {name}` switches it on"))
    }

    fn is_off(&self, name: &str) -> bool {
        self.config.off.iter().any(|off| off.as_str() == name)
    }

    /// Starts a new instance of an upstream while the old one finishes its calls. Listed items
    /// stay, unless `lists_anew`, which also forgets them on disk.
    fn anew(&mut self, name: &str, lists_anew: bool) -> Result<Arc<UpstreamHandle>, String> {
        let unknown = || unknown(name);
        let name = UpstreamName::parse(name).map_err(|_| unknown())?;
        let mut old = self.managed.remove(&name).ok_or_else(unknown)?;
        let (spec, inventory) = (old.handle.spec.load_full(), old.inventory.take());
        let restarts = old.handle.main.restarts.load(Ordering::Relaxed) + 1;
        self.retire(old);
        let inventory = inventory.filter(|_| !lists_anew);
        if let Some(store) = self.parts.store.as_ref().filter(|_| lists_anew) {
            store.forget(&spec.inventory_key());
        }
        self.launch((*spec).clone())?;
        let new = self.managed.get_mut(&name).ok_or_else(unknown)?;
        if let Some(inventory) = inventory {
            (new.bytes, new.inventory) = (inventory.0.bytes(), Some(inventory));
        }
        new.handle.main.restarts.store(restarts, Ordering::Relaxed);
        new.handle.metrics.restarted();
        // Starts a lazy upstream too, without waiting for a call.
        new.handle.main.order();
        let handle = Arc::clone(&new.handle);
        self.publish(true);
        Ok(handle)
    }

    /// Switches an upstream on or off. Its approvals and lists are kept, as for an upstream that
    /// the configuration disables.
    pub(super) fn switch(&mut self, name: &str, on: bool) -> Result<(), String> {
        let written = self.written.upstreams.iter().find(|spec| spec.name.as_str() == name);
        let name = written.ok_or_else(|| unknown(name))?.name.clone();
        let mut off = self.config.off.clone();
        off.retain(|one| *one != name);
        if !on {
            off.push(name);
        }
        self.enforce(self.written.clone(), &off).map(drop)
    }

    /// Stops a removed upstream in the background, once no snapshot has it and its calls have ended
    /// or had [`REPLACE_DRAIN`].
    pub(super) fn retire(&mut self, old: ManagedUpstream) {
        old.handle.health.retire();
        let (gone, is_gone) = tokio::sync::oneshot::channel::<()>();
        self.afterwards.push(Box::new(move || {
            let _is_stopped = gone.send(());
        }));
        self.actors.spawn("retire", async move {
            let _supervisor_ends = is_gone.await;
            let until = clock::now() + REPLACE_DRAIN;
            while old.handle.in_flight.load(Ordering::Relaxed) > 0 && clock::now() < until {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            old.stop.cancel();
        });
    }
}

fn unknown(name: &str) -> String {
    format!("there is no upstream `{name}`; `headend status` lists them")
}
