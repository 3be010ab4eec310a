//! The pick and the lookup before it.

#[path = "../src/fixtures.rs"]
#[allow(dead_code, unreachable_pub)]
mod fixtures;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rand::SeedableRng;
use rand::rngs::StdRng;
use spareline_core::health::Health;
use spareline_core::items::{Item, Items};
use spareline_core::overlay::{Found, Overlays};
use spareline_core::pick::{Pick, Tried, pick};
use spareline_core::view::{Clock, View};
use spareline_core::{Cause, ChannelId, Endpoint, Revision, Subject};
use spareline_proto::registry::v1 as pb;

const NOW: Duration = Duration::from_secs(100);

fn view(items: impl IntoIterator<Item = Item>) -> View {
    let clock = Clock { server_time: Some(fixtures::at(1000)), now: NOW };
    let items: Items = items.into_iter().collect();
    View::empty(1).replace(&items, "e", Revision(1), clock).0
}

fn candidates(count: i64, outs: i64) -> View {
    let channel = |id: i64| pb::Channel {
        weight: Some(u32::try_from(id % 7 + 1).unwrap_or(1)),
        credential_ids: vec![id],
        ..fixtures::channel(id)
    };
    let channels = (1..=count).map(|id| Item::Channel(Arc::new(channel(id))));
    let keys = (1..=count).map(|id| Item::Credential(Arc::new(fixtures::credential(id))));
    let out = |id| fixtures::out(fixtures::on_channel(id), pb::Cause::Quota, 9);
    view(channels.chain(keys).chain((1..=outs).map(|id| Item::Status(Arc::new(out(id))))))
}

fn bench_pick(c: &mut Criterion) {
    let mut group = c.benchmark_group("pick");
    for (name, count, outs, overlays) in [
        ("5", 5, 0, 0),
        ("100", 100, 0, 0),
        ("100, 50 out", 100, 50, 0),
        ("100, 99 out", 100, 99, 0),
        ("100, 10 overlays", 100, 0, 10),
    ] {
        let view = candidates(count, outs);
        let (policy, tried, health, local) =
            (view.policy("default").clone(), Tried::default(), Health::default(), Overlays::default());
        let mut rng = StdRng::seed_from_u64(1);
        for id in 1..=overlays {
            let found = Found {
                subject: Subject::Channel(ChannelId(id)),
                cause: Cause::Credential,
                hint: None,
                revision: Revision(1),
                verdict_id: Arc::from("v"),
            };
            local.add(&found, &view, NOW, &mut rng);
        }
        let mut run = |affinity: Option<&str>, id: BenchmarkId| {
            let request = Pick {
                view: &view,
                group: "default",
                model: "m",
                endpoint: Some(Endpoint::ChatCompletions),
                policy: &policy,
                tried: &tried,
                health: &health,
                overlays: &local,
                affinity,
                pinned: None,
                alone: false,
                now: NOW,
            };
            group.bench_function(id, |b| b.iter(|| pick(black_box(&request), &mut rng)));
        };
        run(None, BenchmarkId::new("weighted", name));
        run(Some("user-1"), BenchmarkId::new("affinity", name));
    }
    group.finish();
}

fn bench_lookup(c: &mut Criterion) {
    let mut group = c.benchmark_group("lookup");
    for channels in [10, 10_000] {
        let (specs, keys) = fixtures::fleet(channels);
        let view = view(keys.into_iter().map(Item::Credential).chain(specs.into_iter().map(Item::Channel)));
        let endpoint = Some(Endpoint::ChatCompletions);
        group.bench_function(BenchmarkId::from_parameter(channels), |b| {
            b.iter(|| view.table().lookup(black_box("default"), black_box("model-0-3"), endpoint));
        });
    }
    group.finish();
}

criterion_group!(benches, bench_pick, bench_lookup);
criterion_main!(benches);
