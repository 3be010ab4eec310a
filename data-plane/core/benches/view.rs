//! Building a view, applying updates to it, and what both sides of the watch compute.

#[path = "../src/fixtures.rs"]
#[allow(dead_code, unreachable_pub)]
mod fixtures;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use spareline_core::ids::{ChannelId, CredentialId};
use spareline_core::items::{Delta, Item, ItemKey, Items, Narrowed, digest};
use spareline_core::view::{Clock, View};
use spareline_core::{Revision, Subject};
use spareline_proto::registry::v1 as pb;

const CHANNELS: i64 = 10_000;

fn items() -> Items {
    let (channels, keys) = fixtures::fleet(CHANNELS);
    keys.into_iter().map(Item::Credential).chain(channels.into_iter().map(Item::Channel)).collect()
}

fn clock() -> Clock {
    Clock { server_time: Some(fixtures::at(1000)), now: Duration::from_secs(100) }
}

fn reweighted(items: &Items) -> Delta {
    let before = items.channel(ChannelId(5_000)).cloned().unwrap_or_default();
    let channel = pb::Channel { weight: Some(9), spec_revision: CHANNELS + 1, ..(*before).clone() };
    Delta { channels: vec![Arc::new(channel)], ..Default::default() }
}

fn disabled(id: i64) -> Delta {
    let status = fixtures::out(fixtures::on_credential(id), pb::Cause::Credential, CHANNELS + 2);
    Delta { statuses: vec![Arc::new(status)], ..Default::default() }
}

fn bench_view(c: &mut Criterion) {
    let items = items();
    let (view, _) = View::empty(1).replace(&items, "e", Revision(1), clock());
    let mut group = c.benchmark_group("view of 10 000 channels, 100 000 abilities");
    group.sample_size(20);
    group.bench_function("build", |b| b.iter(|| View::empty(1).replace(&items, "e", Revision(1), clock())));
    let one = reweighted(&items);
    group.bench_function("apply one channel", |b| b.iter(|| view.apply(&one, Revision(2), clock())));
    let status = disabled(77);
    group.bench_function("apply one status", |b| b.iter(|| view.apply(&status, Revision(2), clock())));
    let fresh: Items = items.iter().collect();
    group.bench_function("replace by the same", |b| {
        b.iter(|| view.replace(&fresh, "e", Revision(2), clock()));
    });
    group.finish();
}

fn bench_items(c: &mut Criterion) {
    let items = items();
    let one = items.apply(&reweighted(&items)).apply(&disabled(77));
    let narrowed = Narrowed::new(&items, &["default"]);
    let mut group = c.benchmark_group("items");
    group.bench_function("diff of two changes in 20 000", |b| b.iter(|| items.diff(black_box(&one))));
    group.bench_function("narrow, following two changes", |b| b.iter(|| narrowed.follow(black_box(&one))));
    let delta = items.diff(&one);
    group.bench_function("apply two changes", |b| b.iter(|| items.apply(black_box(&delta))));
    group.finish();

    let mut group = c.benchmark_group("digest");
    let channel = ItemKey::Channel(ChannelId(7));
    let ability = Subject::Ability {
        channel: ChannelId(7),
        model: Arc::from("gpt-4o-mini"),
        credential: Some(CredentialId(9)),
    };
    let status = ItemKey::Status(ability);
    group.bench_function("channel", |b| b.iter(|| digest::item(black_box(&channel), 42)));
    group.bench_function("status of an ability", |b| b.iter(|| digest::item(black_box(&status), 42)));
    group.finish();
}

criterion_group!(benches, bench_view, bench_items);
criterion_main!(benches);
