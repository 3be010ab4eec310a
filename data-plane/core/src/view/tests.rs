use std::collections::BTreeMap;

use proptest::prelude::*;
use spareline_proto::registry::v1 as pb;

use super::*;
use crate::fixtures;
use crate::items::{Delta, Item};
use crate::words::Endpoint;

fn clock() -> Clock {
    Clock { server_time: Some(fixtures::at(1000)), now: Duration::from_secs(100) }
}

fn view(items: Vec<Item>) -> View {
    let (view, rejections) = View::empty(1).replace(&items.into_iter().collect(), "e", Revision(1), clock());
    assert_eq!(rejections, []);
    view
}

fn channel(wire: pb::Channel) -> Item {
    Item::Channel(Arc::new(wire))
}

fn with(items: Vec<Item>) -> Delta {
    let mut delta = Delta::default();
    items.into_iter().for_each(|item| delta.push(item));
    delta
}

/// Everything a pick can see, in a form that can be compared.
fn seen(view: &View) -> BTreeMap<String, Vec<String>> {
    let mut seen = BTreeMap::new();
    for group in ["default", "a", "b"] {
        for model in view.table().models(group) {
            for endpoint in [None, Some(Endpoint::ChatCompletions), Some(Endpoint::Messages)] {
                let Some(candidates) = view.table().lookup(group, &model, endpoint) else { continue };
                let members = candidates.layers.iter().flat_map(|l| l.members.iter().map(move |m| (l, m)));
                let members = members.map(|(l, m)| {
                    let keys: Vec<_> = m.line.keys.iter().map(|k| k.id.0).collect();
                    format!(
                        "{} {}/{} {:?} v{}",
                        l.priority, m.share, l.total, keys, m.line.spec.spec_revision
                    )
                });
                seen.insert(format!("{group} {model} {endpoint:?}"), members.collect());
            }
        }
    }
    for line in view.lines() {
        let outs = view.outs(line.spec.id).map(|o| format!("{o:?}"));
        seen.insert(format!("outs {} {}", line.spec.id, line.spec.name), outs.into_iter().collect());
        let named = view.line_by_name(&line.spec.name).map(|l| l.spec.id.to_string());
        seen.insert(format!("name {}", line.spec.name), named.into_iter().collect());
    }
    seen
}

fn step() -> impl Strategy<Value = (u8, i64, u8)> {
    (0..8_u8, 1..6_i64, 0..6_u8)
}

fn change(items: &mut Items, revision: i64, (what, id, how): (u8, i64, u8)) {
    let how_i = i64::from(how);
    match what {
        0..=3 => {
            let mut wire = fixtures::channel(id);
            wire.spec_revision = revision;
            wire.groups = vec![["default", "a", "b"][usize::from(how) % 3].to_owned()];
            wire.models = (0..=how % 3).map(|m| fixtures::model(&format!("m{m}"))).collect();
            wire.priority = i32::from(how % 2);
            wire.weight = Some(u32::from(how % 4));
            wire.credential_ids = vec![how_i % 3 + 1];
            if how == 5 {
                wire.provider = "anthropic".to_owned();
            }
            items.insert(channel(wire));
        }
        4 => items.remove(&ItemKey::Channel(ChannelId(id))),
        5 => {
            items.insert(Item::Credential(Arc::new(fixtures::credential(how_i % 3 + 1))));
        }
        6 => {
            let subject = match how % 3 {
                0 => fixtures::on_channel(id),
                1 => fixtures::on_credential(id % 3 + 1),
                _ => fixtures::on_ability(id, "m0", None),
            };
            items.insert(Item::Status(Arc::new(fixtures::out(subject, pb::Cause::Quota, revision))));
        }
        _ => items.remove(&ItemKey::Status(Subject::Credential(CredentialId(id % 3 + 1)))),
    }
}

proptest! {
    #[test]
    fn a_view_kept_up_is_the_view_made_anew(frames in prop::collection::vec(prop::collection::vec(step(), 0..8), 1..8)) {
        let mut items = Items::default();
        let mut view = View::empty(1);
        let mut revision = 0;
        for frame in frames {
            let before = items.clone();
            for step in frame {
                revision += 1;
                change(&mut items, revision, step);
            }
            let (next, rejections) = view.apply(&before.diff(&items), Revision(revision), clock());
            prop_assert_eq!(rejections, vec![]);
            view = next;
            let (anew, _) = View::empty(1).replace(&items, "e", Revision(revision), clock());
            prop_assert_eq!(seen(&view), seen(&anew));
            prop_assert_eq!(view.items().digest(), items.digest());
        }
    }
}

#[test]
fn a_bad_item_is_rejected_by_itself_and_its_older_version_stays() {
    let old = view(vec![channel(fixtures::channel(1)), channel(fixtures::channel(2))]);
    let bad = pb::Channel { base_url: "ftp://x".into(), spec_revision: 10, ..fixtures::channel(1) };
    let good = pb::Channel { weight: Some(7), spec_revision: 10, ..fixtures::channel(2) };
    let (new, rejections) = old.apply(&with(vec![channel(bad), channel(good)]), Revision(10), clock());
    assert_eq!(rejections.len(), 1);
    assert_eq!((&rejections[0].key, rejections[0].version), (&ItemKey::Channel(ChannelId(1)), 10));
    assert_eq!(rejections[0].kept, Some(1));
    assert!(rejections[0].message.contains("base_url"));
    assert_eq!(new.line(ChannelId(1)).unwrap().spec.spec_revision, Revision(1));
    assert_eq!(new.line(ChannelId(2)).unwrap().spec.weight, 7);
    assert_eq!(new.revision(), Revision(10));
    let kept: Items = [(1, 1), (2, 10)]
        .map(|(id, spec_revision)| channel(pb::Channel { spec_revision, ..fixtures::channel(id) }))
        .into_iter()
        .collect();
    assert_eq!(new.items().digest(), kept.digest(), "agreement is about what is served");
}

#[test]
fn a_snapshot_too_keeps_the_older_version_of_what_it_cannot_use() {
    let old = view(vec![channel(fixtures::channel(1)), channel(fixtures::channel(2))]);
    let bad = pb::Channel { name: "42".into(), spec_revision: 10, ..fixtures::channel(1) };
    let never = pb::Channel { name: "43".into(), spec_revision: 10, ..fixtures::channel(3) };
    let items = [channel(bad), channel(never)].into_iter().collect();
    for epoch in ["e", "f"] {
        let (new, rejections) = old.replace(&items, epoch, Revision(10), clock());
        let kept: Vec<_> = rejections.iter().map(|r| r.kept).collect();
        assert_eq!(kept, [Some(1), None]);
        assert_eq!(new.lines().map(|l| l.spec.id.0).collect::<Vec<_>>(), [1]);
        assert_eq!(&**new.epoch(), epoch);
    }
}

#[test]
fn another_epoch_makes_equal_versions_new() {
    let old = view(vec![channel(fixtures::channel(1))]);
    let other = pb::Channel { weight: Some(9), ..fixtures::channel(1) };
    let items = [channel(other)].into_iter().collect();
    let (same_epoch, _) = old.replace(&items, "e", Revision(2), clock());
    assert_eq!(same_epoch.line(ChannelId(1)).unwrap().spec.weight, 1);
    let (other_epoch, _) = old.replace(&items, "f", Revision(2), clock());
    assert_eq!(other_epoch.line(ChannelId(1)).unwrap().spec.weight, 9);
}

#[test]
fn what_did_not_change_is_shared() {
    let old = view(vec![channel(fixtures::channel(1)), channel(fixtures::channel(2))]);
    let delta =
        with(vec![channel(pb::Channel { weight: Some(2), spec_revision: 5, ..fixtures::channel(2) })]);
    let (new, _) = old.apply(&delta, Revision(5), clock());
    assert!(Arc::ptr_eq(old.line(ChannelId(1)).unwrap(), new.line(ChannelId(1)).unwrap()));
    assert!(!Arc::ptr_eq(old.line(ChannelId(2)).unwrap(), new.line(ChannelId(2)).unwrap()));
}

#[test]
fn a_rotated_key_reaches_every_channel_that_lists_it() {
    let listing = |id, keys: &[i64]| pb::Channel { credential_ids: keys.to_vec(), ..fixtures::channel(id) };
    let old = view(vec![channel(listing(1, &[1])), channel(listing(2, &[1])), channel(listing(3, &[2]))]);
    assert!(old.line(ChannelId(1)).unwrap().keys.is_empty(), "listed, but not held");
    let (new, _) =
        old.apply(&with(vec![Item::Credential(Arc::new(fixtures::credential(1)))]), Revision(5), clock());
    assert_eq!(new.line(ChannelId(1)).unwrap().keys[0].secret.expose(), "sk-1");
    assert_eq!(new.line(ChannelId(2)).unwrap().keys.len(), 1);
    assert_eq!(new.listing(CredentialId(1)).collect::<Vec<_>>(), [ChannelId(1), ChannelId(2)]);
    assert!(!format!("{new:?}").contains("sk-1"));
}

#[test]
fn models_are_usable_as_statuses_say() {
    let keyed = pb::Channel { credential_ids: vec![1, 2], ..fixtures::channel(1) };
    let items = |statuses: Vec<pb::Status>| {
        let mut items = vec![channel(keyed.clone())];
        items.extend([1, 2].map(|id| Item::Credential(Arc::new(fixtures::credential(id)))));
        items.extend(statuses.into_iter().map(|s| Item::Status(Arc::new(s))));
        view(items).model_usable("default", "m", clock().now)
    };
    let dead = |id| fixtures::out(fixtures::on_credential(id), pb::Cause::Credential, 9);
    assert!(items(vec![]));
    assert!(items(vec![dead(1)]));
    assert!(!items(vec![dead(1), dead(2)]));
    assert!(!items(vec![
        dead(1),
        fixtures::out(fixtures::on_ability(1, "m", Some(2)), pb::Cause::ModelUnavailable, 9)
    ]));
    assert!(items(vec![dead(1), fixtures::throttled(fixtures::on_credential(2), 900, 980, true, 9)]));
    assert!(!items(vec![fixtures::out(fixtures::on_channel(1), pb::Cause::Operator, 9)]));
}

#[test]
fn subjects_are_known_or_not() {
    let view = view(vec![channel(pb::Channel { credential_ids: vec![1], ..fixtures::channel(1) })]);
    let ability = |channel, model: &str, credential: Option<i64>| Subject::Ability {
        channel: ChannelId(channel),
        model: Arc::from(model),
        credential: credential.map(CredentialId),
    };
    for (subject, known) in [
        (Subject::Channel(ChannelId(1)), true),
        (Subject::Channel(ChannelId(2)), false),
        (Subject::Credential(CredentialId(1)), true),
        (Subject::Credential(CredentialId(2)), false),
        (ability(1, "m", None), true),
        (ability(1, "m", Some(1)), true),
        (ability(1, "m", Some(2)), false),
        (ability(1, "n", None), false),
    ] {
        assert_eq!(view.knows(&subject), known, "{subject:?}");
    }
}

#[test]
fn a_policy_that_does_not_hold_water_is_rejected_and_the_old_one_stays() {
    let policy = |max_attempts, revision| {
        Item::Policy(Arc::new(pb::Policy {
            max_attempts: Some(max_attempts),
            revision,
            ..Default::default()
        }))
    };
    let old = view(vec![policy(7, 1)]);
    let (new, rejections) = old.apply(&with(vec![policy(99, 2)]), Revision(2), clock());
    assert_eq!(rejections[0].message, "max_attempts: must be between 1 and 32");
    assert_eq!(new.policy("default").max_attempts, 7);
    let (gone, _) = new.apply(
        &Delta { removed: vec![ItemKey::Policy(Arc::from(""))], ..Default::default() },
        Revision(3),
        clock(),
    );
    assert_eq!(gone.policy("default").max_attempts, 3);
}
