//! One life of an upstream whose program one replica of the cluster runs at a time: it runs here
//! under a lease, or the replica that has the lease is its server. Until there is either, the
//! upstream is starting, and its calls wait. See [`crate::cluster::lease`].

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{duplex, split};

use crate::base::clock;
use crate::cluster::lease::{ProgramLease, ProgramPlace};
use crate::cluster::lines::ProgramLines;
use crate::cluster::membership::Cluster;
use crate::engine::handshake::EraHint;
use crate::upstream::actor::context::{ActorContext, LifeResult};
use crate::upstream::actor::conversation::{LineCarrier, converse, run_carried, serve_process};
use crate::upstream::process::launch::Launch;

/// Time between two looks for the lease or its owner.
const LOOK: Duration = Duration::from_millis(500);
/// Bytes that may wait in each direction between the link and the protocol.
const PIPE_BYTES: usize = 64 * 1024;

/// Serves one life: waits for the lease or for its owner, for the time of a start at most.
pub(super) async fn serve_placed(
    context: &ActorContext,
    cluster: &Arc<Cluster>,
    launch: Launch,
    hint: EraHint,
) -> LifeResult {
    let (handle, stop) = (&context.handle, &context.spawner.stop);
    let (name, until) = (handle.name.as_str(), clock::now() + handle.start_limit());
    while !stop.is_cancelled() {
        // Not cut short: a lease that was taken must be known here.
        let why = match cluster.place_program(name).await {
            Ok(ProgramPlace::Here(lease)) => return Box::pin(serve_here(context, cluster, launch, hint, lease)).await,
            Ok(ProgramPlace::At(run)) if cluster.is_own(run) => {
                "the program that ran here before has not ended yet".to_owned()
            }
            Ok(ProgramPlace::At(run)) => match stop.run_until_cancelled(cluster.open_lines(run, name)).await {
                Some(Ok(lines)) => return Box::pin(serve_there(context, cluster, lines, hint)).await,
                Some(Err(why)) => why,
                None => break,
            },
            Ok(ProgramPlace::Unknown) => {
                "the store was replaced, and the program may still run at a replica".to_owned()
            }
            Err(error) => format!("which replica may run it is not known: {error}"),
        };
        if clock::now() >= until {
            handle.health.ran_out();
            return LifeResult { why, next: None, served: None };
        }
        tracing::debug!(upstream.name = name, why, "the program runs neither here nor at a replica that serves it");
        if stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_none() {
            break;
        }
    }
    LifeResult { why: "stopped".to_owned(), next: None, served: None }
}

/// Runs the program under the lease, and releases the lease once the program has ended.
async fn serve_here(
    context: &ActorContext,
    cluster: &Cluster,
    mut launch: Launch,
    hint: EraHint,
    lease: Arc<ProgramLease>,
) -> LifeResult {
    context.handle.runs_at.store(Some(Arc::new(cluster.name())));
    launch.lease = Some(Arc::clone(&lease));
    let life = context.life(context.lists_first);
    let mut serving = Box::pin(serve_process(&life, launch, hint));
    let run = tokio::select! {
        run = &mut serving => run,
        () = cluster.keep_lease(&lease) => {
            life.spawner.stop.cancel();
            let run = serving.await;
            LifeResult { why: "its lease ran out, since the store of the cluster did not renew it".to_owned(), ..run }
        }
    };
    context.handle.runs_at.store(None);
    cluster.release_lease(&lease).await;
    run
}

/// Speaks to the program at the replica that runs it.
async fn serve_there(context: &ActorContext, cluster: &Arc<Cluster>, lines: ProgramLines, hint: EraHint) -> LifeResult {
    let (handle, start) = (&context.handle, context.handle.start_limit());
    handle.runs_at.store(Some(Arc::new(lines.owner.clone())));
    let (near, far) = duplex(PIPE_BYTES);
    let (reader, writer) = split(near);
    let talk = converse(context, (hint, start), writer, reader, LineCarrier::Replica);
    let carry = lines.carry(cluster, far);
    tokio::pin!(talk, carry);
    let life = run_carried(talk, carry).await;
    handle.runs_at.store(None);
    life
}
