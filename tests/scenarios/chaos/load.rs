//! The load: fifty writes a second by callers who try again until they are answered, and requests through every proxy.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use rand::seq::IndexedRandom as _;
use spareline_core::backoff::FullJitter;
use spareline_proto::{
    admin::v1::{
        AddCredentialRequest, CreateChannelRequest, DeleteChannelRequest, DisableSubjectRequest,
        EnableSubjectRequest, GetChannelRequest, SubjectName, UpdateChannelRequest,
        channel_admin_service_client::ChannelAdminServiceClient,
    },
    dataplane::v1::{
        Disposition, ReportVerdictsRequest, Verdict, report_service_client::ReportServiceClient,
    },
    registry::v1::{Cause, Channel, Evidence, Subject, subject},
};
use spareline_tests::replicas::Replicas;
use tokio::{
    task::JoinSet,
    time::{Instant, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, transport::Channel as Link};

use crate::support::{Asked, ask};

/// Callers of the operators' API, and milliseconds between two calls of each: thirty a second.
const LANES: (usize, u64) = (60, 2000);
/// Reporters, and milliseconds between two verdicts of each: twenty a second.
const REPORTERS: (usize, u64) = (20, 1000);
/// How long a call may take before it is made again, at another replica.
const PATIENCE: Duration = Duration::from_secs(8);
/// Nobody waits longer for an answer, however often it is asked for.
const LIMIT: Duration = Duration::from_secs(400);
/// Pauses between two tries: longer and longer, or a crowd that is refused would keep itself refused.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Calls answered so far.
pub(crate) static ANSWERED: AtomicUsize = AtomicUsize::new(0);

/// What was answered.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Names of channels created, and the request that did it.
    pub(crate) created: Vec<(String, String)>,
    /// Names of channels deleted.
    pub(crate) deleted: Vec<String>,
    /// Requests that added a key.
    pub(crate) keys: Vec<String>,
    /// Comments of enables and disables.
    pub(crate) comments: Vec<String>,
    /// What each channel that lives weighs.
    pub(crate) weights: Vec<(String, u32)>,
    /// Verdicts and their answers.
    pub(crate) verdicts: Vec<(String, Disposition)>,
    /// Requests through proxies.
    pub(crate) requests: usize,
    /// Those of them that were not answered well.
    pub(crate) failures: Vec<String>,
    /// Answers that blame the control plane.
    pub(crate) internal: Vec<String>,
    /// Which replica answered last.
    replica: usize,
    /// Why calls had to be made again.
    retries: BTreeMap<String, usize>,
    /// The longest time to an answer.
    slowest: Duration,
    /// How long the load lasted.
    lasted: Duration,
}

/// A load under way.
pub(crate) struct Load {
    stop: CancellationToken,
    tasks: JoinSet<Result<Done>>,
    begun: Instant,
}

/// Who speaks to the replicas.
#[derive(Clone)]
struct Caller {
    admins: Vec<ChannelAdminServiceClient<Link>>,
    reports: Vec<ReportServiceClient<Link>>,
    base_url: String,
    /// The newest revision that an answer named.
    newest: Arc<AtomicI64>,
    stop: CancellationToken,
}

impl Load {
    pub(crate) async fn start(fleet: &Replicas) -> Result<Self> {
        let stop = CancellationToken::new();
        let caller = Caller {
            admins: (0..fleet.all.len()).map(|n| fleet.admin(n)).collect::<Result<_>>()?,
            reports: fleet.all.iter().map(|r| r.control.reports()).collect::<Result<_>>()?,
            base_url: fleet.provider.base_url(),
            newest: Arc::default(),
            stop: stop.clone(),
        };
        let epoch = fleet.database.registry("default").await?.0.epoch.to_string();
        let mut targets = Vec::new();
        for n in 0..10 {
            let name = format!("target-{n}");
            targets
                .push(fleet.create(n % 2, fleet.channel(&name, "target"), &[&format!("sk-{name}")]).await?);
        }
        let mut tasks = JoinSet::new();
        for lane in 0..LANES.0 {
            tasks.spawn(operate(caller.clone(), lane));
        }
        for reporter in 0..REPORTERS.0 {
            tasks.spawn(report(caller.clone(), reporter, epoch.clone(), targets.clone()));
        }
        for (proxy, _) in &fleet.proxies {
            let asking = ask(proxy.http, proxy.id.clone(), &["steady", "steady", "flaky"], stop.clone());
            tasks.spawn(async move {
                let Asked { requests, failures } = asking.await;
                Ok(Done { requests, failures, ..Done::default() })
            });
        }
        tasks.spawn(revive(caller));
        Ok(Self { stop, tasks, begun: Instant::now() })
    }

    /// Ends it, once everything under way has been answered.
    pub(crate) async fn stop(mut self) -> Result<Done> {
        let lasted = self.begun.elapsed();
        self.stop.cancel();
        let mut all = Done { lasted, ..Done::default() };
        while let Some(done) = self.tasks.join_next().await {
            all.add(done??);
        }
        Ok(all)
    }
}

impl Done {
    fn add(&mut self, other: Self) {
        self.created.extend(other.created);
        self.deleted.extend(other.deleted);
        self.keys.extend(other.keys);
        self.comments.extend(other.comments);
        self.weights.extend(other.weights);
        self.verdicts.extend(other.verdicts);
        self.requests += other.requests;
        self.failures.extend(other.failures);
        self.internal.extend(other.internal);
        for (why, count) in other.retries {
            *self.retries.entry(why).or_default() += count;
        }
        self.slowest = self.slowest.max(other.slowest);
    }

    fn again(&mut self, status: &Status) {
        let message = status.message().split(':').next().unwrap_or_default();
        *self.retries.entry(format!("{:?}, {message}", status.code())).or_default() += 1;
        if status.message().contains("a fault of the control plane") {
            self.internal.push(format!("{status:?}"));
        }
    }

    pub(crate) fn summary(&self) -> String {
        let writes = self.created.len() + self.deleted.len() + self.keys.len() + self.comments.len();
        let writes = writes + self.weights.iter().map(|(_, w)| *w as usize).sum::<usize>();
        format!(
            "{writes} admin writes and {} verdicts answered in {:.0} s, made again: {:?}, the slowest after {:.1} s; {} \
             requests through proxies, {} failed",
            self.verdicts.len(),
            self.lasted.as_secs_f64(),
            self.retries,
            self.slowest.as_secs_f64(),
            self.requests,
            self.failures.len()
        )
    }
}

/// Calls one replica after the other until one answers; what is wrong with the call itself is passed on.
async fn persist<C: Clone, T, F: Future<Output = Result<tonic::Response<T>, Status>>>(
    clients: &[C],
    done: &mut Done,
    call: impl Fn(C) -> F,
) -> Result<Result<T, Status>> {
    let begun = Instant::now();
    let mut pause = FullJitter::new(PAUSES.0, PAUSES.1);
    loop {
        let client = clients.get(done.replica % clients.len()).context("no replica")?.clone();
        let status = match timeout(PATIENCE, call(client)).await {
            Ok(Ok(answer)) => {
                done.slowest = done.slowest.max(begun.elapsed());
                ANSWERED.fetch_add(1, Ordering::Relaxed);
                return Ok(Ok(answer.into_inner()));
            }
            Ok(Err(status)) => status,
            Err(_) => Status::deadline_exceeded("no patience left"),
        };
        match status.code() {
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Internal => {
                done.again(&status);
            }
            _ => return Ok(Err(status)),
        }
        // Somewhere else; who answered is asked again the next time.
        done.replica += rand::random_range(1..clients.len().max(2));
        ensure!(begun.elapsed() < LIMIT, "not answered within {LIMIT:?}, at last: {status:?}");
        let rest = pause.next(&mut rand::rng());
        sleep(rest).await;
    }
}

/// A call that can be made again.
macro_rules! asking {
    ($method:ident, $request:ident) => {
        |mut client| {
            let request = $request.clone();
            async move { client.$method(request).await }
        }
    };
}

fn id() -> String {
    uuid::Uuid::new_v4().to_string()
}

fn named(channel: &str) -> Option<SubjectName> {
    Some(SubjectName { channel: channel.to_owned(), ..Default::default() })
}

/// One operator, the only one for the channels it makes.
async fn operate(caller: Caller, lane: usize) -> Result<Done> {
    let mut done = Done { replica: lane, ..Done::default() };
    let mut mine: Vec<(Channel, u32)> = Vec::new();
    let mut pace = interval(Duration::from_millis(LANES.1));
    sleep(Duration::from_millis(lane as u64 * 33)).await;
    for turn in 0_usize.. {
        tokio::select! {
            () = caller.stop.cancelled() => break,
            _ = pace.tick() => {}
        }
        match turn % 10 {
            0 => {
                let channel = caller.create(&mut done, &format!("lane{lane}-{turn}")).await?;
                mine.push((channel, 0));
            }
            4 => {
                let (channel, _) = mine.last_mut().context("a channel")?;
                caller.add_key(&mut done, channel).await?;
            }
            5 | 6 => {
                let (channel, _) = mine.last().context("a channel")?;
                caller.turn(&mut done, &channel.name, turn % 10 == 6).await?;
            }
            9 if mine.len() > 4 => {
                let (channel, _) = mine.remove(0);
                caller.delete(&mut done, &channel.name).await?;
            }
            _ => {
                let (channel, weight) = mine.last_mut().context("a channel")?;
                *weight += 1;
                caller.weigh(&mut done, channel, *weight).await?;
            }
        }
    }
    done.weights.extend(mine.into_iter().map(|(channel, weight)| (channel.name, weight)));
    Ok(done)
}

impl Caller {
    async fn create(&self, done: &mut Done, name: &str) -> Result<Channel> {
        let channel = Channel {
            name: name.to_owned(),
            provider: "openai".to_owned(),
            base_url: self.base_url.clone(),
            weight: Some(0),
            models: vec![spareline_proto::registry::v1::ModelEntry {
                model: "filler".to_owned(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let request_id = id();
        let request = CreateChannelRequest {
            channel: Some(channel),
            secrets: vec![format!("sk-{name}")],
            request_id: request_id.clone(),
            ..Default::default()
        };
        let answer = persist(&self.admins, done, asking!(create_channel, request))
            .await?
            .with_context(|| format!("create {name}"))?;
        done.created.push((name.to_owned(), request_id));
        answer.channel.context("no channel in the answer")
    }

    async fn add_key(&self, done: &mut Done, channel: &mut Channel) -> Result<()> {
        let request_id = id();
        let request = AddCredentialRequest {
            channel: channel.name.clone(),
            secret: format!("sk-{request_id}"),
            request_id: request_id.clone(),
            ..Default::default()
        };
        persist(&self.admins, done, asking!(add_credential, request))
            .await?
            .with_context(|| format!("add a key to {}", channel.name))?;
        done.keys.push(request_id);
        *channel = self.get(done, &channel.name).await?;
        Ok(())
    }

    async fn get(&self, done: &mut Done, name: &str) -> Result<Channel> {
        let request = GetChannelRequest { channel: name.to_owned() };
        let answer = persist(&self.admins, done, asking!(get_channel, request))
            .await?
            .with_context(|| format!("get {name}"))?;
        answer.channel.and_then(|view| view.channel).context("no channel in the answer")
    }

    /// By etag: a call that arrives long after its caller gave it up must not undo a later one.
    async fn weigh(&self, done: &mut Done, channel: &mut Channel, weight: u32) -> Result<()> {
        let wanted = Channel {
            name: channel.name.clone(),
            etag: channel.etag.clone(),
            weight: Some(weight),
            ..Default::default()
        };
        let update_mask = Some(prost_types::FieldMask { paths: vec!["weight".to_owned()] });
        let request = UpdateChannelRequest { channel: Some(wanted), update_mask, validate_only: false };
        *channel = match persist(&self.admins, done, asking!(update_channel, request)).await? {
            Ok(answer) => answer.channel.context("no channel in the answer")?,
            // One of the calls that were not answered was carried out.
            Err(status) if status.code() == Code::Aborted => self.get(done, &channel.name).await?,
            Err(status) => bail!("update {}: {status:?}", channel.name),
        };
        self.newest.fetch_max(channel.spec_revision, Ordering::Relaxed);
        ensure!(channel.weight == Some(weight), "{} weighs {:?}, not {weight}", channel.name, channel.weight);
        Ok(())
    }

    async fn turn(&self, done: &mut Done, name: &str, on: bool) -> Result<()> {
        let (comment, subject) = (id(), named(name));
        if on {
            let request = EnableSubjectRequest { subject, comment: comment.clone() };
            persist(&self.admins, done, asking!(enable_subject, request))
                .await?
                .with_context(|| format!("enable {name}"))?;
        } else {
            let request = DisableSubjectRequest { subject, comment: comment.clone() };
            persist(&self.admins, done, asking!(disable_subject, request))
                .await?
                .with_context(|| format!("disable {name}"))?;
        }
        done.comments.push(comment);
        Ok(())
    }

    async fn delete(&self, done: &mut Done, name: &str) -> Result<()> {
        let request =
            DeleteChannelRequest { channel: name.to_owned(), allow_missing: true, ..Default::default() };
        persist(&self.admins, done, asking!(delete_channel, request))
            .await?
            .with_context(|| format!("delete {name}"))?;
        done.deleted.push(name.to_owned());
        Ok(())
    }
}

/// One who reports about keys, models and throttles; what it claims is untrue, as the prober finds.
async fn report(caller: Caller, n: usize, epoch: String, targets: Vec<Channel>) -> Result<Done> {
    let mut done = Done { replica: n, ..Done::default() };
    let mut pace = interval(Duration::from_millis(REPORTERS.1));
    sleep(Duration::from_millis(n as u64 * 50)).await;
    let causes = [Cause::Credential, Cause::ModelUnavailable, Cause::Throttled, Cause::Quota];
    loop {
        tokio::select! {
            () = caller.stop.cancelled() => return Ok(done),
            _ = pace.tick() => {}
        }
        let target = targets.choose(&mut rand::rng()).context("a target")?;
        let cause = *causes.choose(&mut rand::rng()).context("a cause")?;
        let credential = *target.credential_ids.first().context("a key")?;
        let verdict = Verdict {
            verdict_id: uuid::Uuid::now_v7().to_string(),
            subject: Some(Subject { kind: Some(subject::Kind::CredentialId(credential)) }),
            cause: cause.into(),
            observed_revision: caller.newest.load(Ordering::Relaxed),
            evidence: Some(Evidence { http_status: 401, ..Default::default() }),
            spec_revision: target.spec_revision,
            retry_after: Some(prost_types::Duration { seconds: 12, nanos: 0 }),
            confirm: rand::random(),
            ..Default::default()
        };
        let request = ReportVerdictsRequest {
            proxy_id: format!("reporter-{n}"),
            epoch: epoch.clone(),
            verdicts: vec![verdict],
        };
        let answer = persist(&caller.reports, &mut done, asking!(report_verdicts, request))
            .await?
            .context("report a verdict")?;
        let result = answer.results.into_iter().next().context("an answer without a result")?;
        done.verdicts.push((result.verdict_id.clone(), result.disposition()));
    }
}

/// Brings back what proxies and reporters take out.
async fn revive(caller: Caller) -> Result<Done> {
    let mut done = Done::default();
    for n in 0_usize.. {
        tokio::select! {
            () = caller.stop.cancelled() => break,
            () = sleep(Duration::from_secs(2)) => {}
        }
        let name =
            if n.is_multiple_of(2) { "flaky-first".to_owned() } else { format!("target-{}", n / 2 % 10) };
        caller.turn(&mut done, &name, true).await?;
    }
    Ok(done)
}
