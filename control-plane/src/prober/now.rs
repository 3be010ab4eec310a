//! `ProbeNow`: a round on an operator's word, answered when everything is settled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use futures_util::stream;
use spareline_core::items::Items;
use spareline_core::{Cause, ChannelId, Subject, convert, derive};
use spareline_proto::admin::v1 as admin;
use tokio::time::Instant;

use super::{AT_ONCE, PROBE_LIMIT, Prober, schedule};
use crate::decide::{Lease, ProbeOutcome};
use crate::store::{Claim, ProbeResult, StoreError};
use crate::world::World;

/// A lease is 30 s long; a probe that starts later than this could outlive it.
const START_WITHIN: Duration = Duration::from_secs(9);
/// How long another replica's probe is waited for.
const OTHERS: Duration = Duration::from_secs(25);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// What became of one subject.
#[derive(Debug)]
enum Settled {
    /// It was out and is back.
    Back,
    /// It stays out, with the reason.
    Out(String),
    /// It was never out: a claim that a probe refuted.
    Fine,
}

pub(super) async fn probe_now(
    prober: &Prober,
    channels: &[ChannelId],
    dry_run: bool,
) -> Result<admin::ProbeNowResponse, StoreError> {
    let claim = if channels.is_empty() { Claim::All } else { Claim::Channels(channels.to_vec()) };
    let mut world = schedule::world(prober).await?;
    let mut settled: BTreeMap<Subject, Settled> = BTreeMap::new();
    let deadline = Instant::now() + OTHERS;
    loop {
        let open: BTreeSet<_> = out_by_machine(&world.items, channels)
            .into_iter()
            .filter(|subject| !settled.contains_key(subject))
            .collect();
        let mut leases = prober.store.claim_probes(&claim, dry_run).await?;
        leases.retain(|lease| !settled.contains_key(&lease.subject));
        let nothing = leases.is_empty();
        settled.extend(round(prober, &world, leases, dry_run).await?);

        world = schedule::world(prober).await?;
        let still = out_by_machine(&world.items, channels);
        let elsewhere = open.iter().filter(|subject| !settled.contains_key(subject));
        let (waiting, back): (Vec<_>, Vec<_>) =
            elsewhere.cloned().partition(|subject| still.contains(subject));
        // Another prober brought it back while we looked.
        settled.extend(back.into_iter().map(|subject| (subject, Settled::Back)));
        if waiting.is_empty() || (nothing && dry_run) {
            break;
        }
        if Instant::now() >= deadline {
            let busy = || Settled::Out("is being probed by another replica".to_owned());
            settled.extend(waiting.into_iter().map(|subject| (subject, busy())));
            break;
        }
        if nothing {
            tokio::time::sleep(LOOK).await;
        }
    }
    Ok(answer(&world, settled, channels))
}

/// Probes what was claimed, so many at once.
async fn round(
    prober: &Prober,
    world: &Arc<World>,
    leases: Vec<Lease>,
    dry_run: bool,
) -> Result<Vec<(Subject, Settled)>, StoreError> {
    let claimed = Instant::now();
    let probes = stream::iter(leases).map(|lease| async move {
        if claimed.elapsed() > START_WITHIN.min(PROBE_LIMIT) && !dry_run {
            let late = "not probed: too many at once; its turn comes by itself".to_owned();
            return Ok((lease.subject, Settled::Out(late)));
        }
        let outcome = schedule::probe(prober, world, &lease).await;
        let result = if dry_run { None } else { Some(schedule::finish(prober, &lease, &outcome).await?) };
        let settled = settle(prober, &lease, &outcome, result.as_ref());
        Ok::<_, StoreError>((lease.subject, settled))
    });
    probes.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await.into_iter().collect()
}

fn settle(prober: &Prober, lease: &Lease, outcome: &ProbeOutcome, result: Option<&ProbeResult>) -> Settled {
    if let Some(ProbeResult::Lost) = result {
        return Settled::Out("changed by somebody else during the probe".into());
    }
    match outcome {
        ProbeOutcome::Good => {
            let auto_enable = prober.worlds.current().is_none_or(|world| world.rules.auto_enable);
            if !lease.status.is_out(time::OffsetDateTime::now_utc()) {
                return Settled::Fine;
            }
            if !auto_enable {
                return Settled::Out(
                    "answers again; automatic enabling is off, so a human has to enable it".into(),
                );
            }
            Settled::Back
        }
        ProbeOutcome::Bad { reason, .. } | ProbeOutcome::Throttled { reason, .. } => {
            Settled::Out(reason.clone())
        }
        ProbeOutcome::Inconclusive { reason } => Settled::Out(format!("inconclusive: {reason}")),
    }
}

/// What a probe may bring back: out, and neither by a human nor for a time.
fn out_by_machine(items: &Items, channels: &[ChannelId]) -> BTreeSet<Subject> {
    let now = SystemTime::now().into();
    let concerns = |subject: &Subject| {
        let mut of = derive::channels_of(items, subject);
        channels.is_empty() || of.any(|c| channels.contains(&ChannelId(c.channel_id)))
    };
    let probed = |cause| !matches!(cause, None | Some(Cause::Operator | Cause::Throttled));
    items
        .statuses()
        .filter(|(_, status)| derive::is_out(status, &now) && probed(convert::cause(status.cause)))
        .map(|(subject, _)| subject)
        .filter(|subject| derive::channels_of(items, subject).next().is_some() && concerns(subject))
        .cloned()
        .collect()
}

fn answer(
    world: &World,
    settled: BTreeMap<Subject, Settled>,
    channels: &[ChannelId],
) -> admin::ProbeNowResponse {
    let mut response = admin::ProbeNowResponse {
        scanned: u32::try_from(settled.len()).unwrap_or(u32::MAX),
        ..Default::default()
    };
    let mut recovered = BTreeSet::new();
    for (subject, settled) in &settled {
        for channel in derive::channels_of(&world.items, subject) {
            match settled {
                Settled::Fine => {}
                Settled::Back => {
                    recovered.insert(channel.name.clone());
                }
                Settled::Out(reason) => response.still_disabled.push(admin::StillDisabled {
                    subject: Some(name(&channel.name, subject)),
                    reason: reason.clone(),
                }),
            }
        }
    }
    // Whoever names a channel wants to know why it stays out, also where a probe could not help.
    let now = SystemTime::now().into();
    for id in channels {
        let Some(channel) = world.items.channel(*id) else { continue };
        let Some(status) = derive::channel_out(&world.items, channel, &now) else { continue };
        let subject = status.subject.as_ref().and_then(convert::subject);
        let Some(subject) = subject.filter(|subject| !settled.contains_key(subject)) else { continue };
        let reason = match convert::cause(status.cause) {
            Some(Cause::Operator) => format!("disabled by an operator: {}", status.reason),
            Some(Cause::Throttled) => format!("throttled until its time is over: {}", status.reason),
            _ => status.reason.clone(),
        };
        let subject = Some(name(&channel.name, &subject));
        response.still_disabled.push(admin::StillDisabled { subject, reason });
    }
    response.recovered = recovered.into_iter().collect();
    response
}

fn name(channel: &str, subject: &Subject) -> admin::SubjectName {
    let (credential, model) = match subject {
        Subject::Channel(_) => (None, None),
        Subject::Credential(id) => (Some(id.to_string()), None),
        Subject::Ability { model, credential, .. } => {
            (credential.map(|c| c.to_string()), Some(model.to_string()))
        }
    };
    admin::SubjectName { channel: channel.to_owned(), credential, model }
}
