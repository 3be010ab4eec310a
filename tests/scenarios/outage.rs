//! The database is away: nothing of ours stops, nothing is lost, and nothing has to be restarted.
//!
//! `SPARELINE_OUTAGE_SECONDS` makes it longer.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use spareline_proto::registry::v1::{Cause, Channel, ServingState};
use spareline_tests::{
    database::Stop, http::Call, provider::script::KeyState, replicas::Replicas, stack::SOON,
};
use tokio::time::{Instant, sleep};
use tonic::Code;

use crate::support::{Trickle, number};

/// As short as still shows it.
const SHORT: u64 = 20;
/// Connections to the database that one replica may try in a second, over all it does.
const DIALS: u64 = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_of_the_database_heals_by_itself_and_loses_no_report() -> Result<()> {
    let time = Duration::from_secs(number("SPARELINE_OUTAGE_SECONDS").unwrap_or(SHORT));
    let mut fleet = Replicas::start(2).await?;
    let preferred = Channel { priority: 10, ..fleet.channel("first", "m") };
    fleet.create(0, preferred, &["sk-first"]).await?;
    fleet.create(0, fleet.channel("second", "m"), &["sk-second"]).await?;
    fleet.add_proxies(2, &[]).await?;
    fleet.add_watchers(4).await?;
    fleet.agree(SOON).await?;
    let pids: Vec<_> = fleet.all.iter().map(|r| r.control.process.pid()).collect::<Result<_>>()?;
    let sessions: Vec<_> = fleet.watchers.iter().map(|(w, _)| w.seen().sessions).collect();
    let trickle = Trickle::start(&fleet, &["m"]);

    fleet.database.stop(Stop::Fast).await?;
    let begun = Instant::now();
    for replica in &fleet.all {
        let not_ready = async || replica.control.page("/readyz").await.is_ok_and(|page| page.status == 503);
        while !not_ready().await {
            ensure!(begun.elapsed() < SOON, "a replica says that it is ready without a database");
            sleep(Duration::from_millis(100)).await;
        }
        replica.control.process.wait_for_log(SOON, |l| l.is("database_lost")).await?;
        assert!((replica.control.metric("spareline_control_database_up").await?).abs() < 0.5);
    }
    println!("both replicas said so after {:?}", begun.elapsed());
    let refused = fleet.create(0, fleet.channel("third", "m"), &["sk-3"]).await;
    let refused = refused.err().context("a write without a database")?;
    let status = refused.downcast_ref::<tonic::Status>().context("a status")?;
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("the database is unavailable"), "{status:?}");

    // A key dies meanwhile: the proxies switch at once, and keep what they have to report.
    fleet.provider.key("sk-first", KeyState::Dead);
    let dials: Vec<_> = fleet.all.iter().map(|r| r.database.accepted()).collect();
    let lines: Vec<_> = fleet.all.iter().map(|r| r.control.process.mark()).collect();
    let rest = time.saturating_sub(begun.elapsed());
    sleep(rest).await;
    for (n, replica) in fleet.all.iter().enumerate() {
        let tried = replica.database.accepted() - dials[n];
        let told = replica.control.process.mark() - lines[n];
        println!("{tried} dials and {told} log lines of control-{} in {rest:?}", n + 1);
        ensure!(tried as u64 <= DIALS * (rest.as_secs() + 1), "{tried} dials in {rest:?} are a storm");
        ensure!(told as u64 <= 20 + rest.as_secs(), "{told} log lines in {rest:?}");
    }
    for (proxy, _) in &fleet.proxies {
        let page = Call::get("/debug/registry").send(proxy.admin).await?.json();
        assert!(page["reports_waiting"].as_i64() > Some(0), "{}: {}", proxy.id, page["reports_waiting"]);
        assert_eq!(page["alone"], false, "its replica lives");
    }

    fleet.database.run().await?;
    let back = Instant::now();
    fleet.agree(Duration::from_secs(90)).await?;
    loop {
        let request = spareline_proto::admin::v1::GetChannelRequest { channel: "first".to_owned() };
        let view = fleet.admin(1)?.get_channel(request).await?.into_inner().channel.context("a view")?;
        if view.state() == ServingState::Disabled && view.cause() == Cause::Credential {
            break;
        }
        ensure!(back.elapsed() < Duration::from_secs(60), "what was reported meanwhile is lost: {view:?}");
        sleep(Duration::from_millis(100)).await;
    }
    fleet.create(1, fleet.channel("third", "m"), &["sk-3"]).await.context("a write after it")?;
    fleet.agree(SOON).await?;
    println!("healed within {:?}", back.elapsed());
    for replica in &fleet.all {
        assert_eq!(replica.control.page("/readyz").await?.status, 200);
    }
    for (proxy, _) in &fleet.proxies {
        // Each tries again in its own time, at most 15 s later.
        proxy.process.wait_for_log(2 * SOON, |l| l.is("verdict_answered")).await?;
    }
    let after: Vec<_> = fleet.all.iter().map(|r| r.control.process.pid()).collect::<Result<_>>()?;
    assert_eq!(after, pids, "a replica was started again");
    let now: Vec<_> = fleet.watchers.iter().map(|(w, _)| w.seen().sessions).collect();
    // A session's age ends it now and then; the database does not.
    let renewed = now.iter().sum::<usize>() - sessions.iter().sum::<usize>();
    ensure!(renewed == 0 || time > Duration::from_secs(600), "{renewed} watches were lost");
    assert_eq!(fleet.faults(), [""; 0]);
    trickle.ended_well().await
}
