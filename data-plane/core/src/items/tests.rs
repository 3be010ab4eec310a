use proptest::prelude::*;
use spareline_proto::registry::v1 as pb;

use super::*;
use crate::fixtures;

/// One change of a small registry. Versions rise, as revisions do.
fn change(step: i64, what: u8, id: i64, group: u8) -> (Option<Item>, Option<ItemKey>) {
    let groups = ["default", "a", "b"];
    let key = ChannelId(id);
    match what {
        0..=3 => {
            let mut channel = fixtures::channel(id);
            channel.spec_revision = step;
            channel.groups = vec![groups[usize::from(group) % 3].to_owned()];
            channel.credential_ids = vec![id % 3 + 1, id % 5 + 1];
            channel.credential_ids.dedup();
            (Some(Item::Channel(Arc::new(channel))), None)
        }
        4 => (None, Some(ItemKey::Channel(key))),
        5 => (Some(Item::Credential(Arc::new(fixtures::credential(id % 5 + 1)))), None),
        6 => (None, Some(ItemKey::Credential(CredentialId(id % 5 + 1)))),
        7..=10 => {
            let subject = match group % 4 {
                0 => fixtures::on_channel(id),
                1 => fixtures::on_credential(id % 5 + 1),
                2 => fixtures::on_ability(id, "m", None),
                _ => fixtures::on_ability(id, "m", Some(id % 5 + 1)),
            };
            (Some(Item::Status(Arc::new(fixtures::out(subject, pb::Cause::Quota, step)))), None)
        }
        11 => {
            let group = groups[usize::from(group) % 3];
            let policy = pb::Policy { group: group.to_owned(), revision: step, ..Default::default() };
            (Some(Item::Policy(Arc::new(policy))), None)
        }
        12 => (None, Some(ItemKey::Status(Subject::Channel(key)))),
        _ => (None, Some(ItemKey::Policy(Arc::from(groups[usize::from(group) % 3])))),
    }
}

type Steps = Vec<(u8, i64, u8)>;

fn steps(most: usize) -> impl Strategy<Value = Steps> {
    prop::collection::vec((0..14_u8, 1..12_i64, 0..4_u8), 0..most)
}

fn play(items: &mut Items, steps: &Steps, from: i64) {
    for (i, (what, id, group)) in steps.iter().enumerate() {
        let (put, gone) = change(from + i64::try_from(i).unwrap(), *what, *id, *group);
        put.into_iter().for_each(|item| assert!(items.insert(item)));
        gone.iter().for_each(|key| items.remove(key));
    }
}

fn versions(items: &Items) -> Vec<(ItemKey, i64)> {
    items.iter().map(|item| (item.key().unwrap(), item.version())).collect()
}

proptest! {
    #[test]
    fn applying_a_difference_leads_there(before in steps(60), between in steps(20)) {
        let mut a = Items::default();
        play(&mut a, &before, 1);
        let mut b = a.clone();
        play(&mut b, &between, 1000);
        let there = a.apply(&a.diff(&b));
        prop_assert_eq!(versions(&there), versions(&b));
        prop_assert_eq!(there.digest(), b.digest());
        prop_assert!(b.diff(&there).is_empty());
        // The wire loses nothing.
        let wired = Delta::from_update(a.diff(&b).to_update());
        prop_assert_eq!(a.apply(&wired).digest(), b.digest());
    }

    #[test]
    fn the_digest_kept_up_is_the_digest_made_anew(changes in steps(80)) {
        let mut items = Items::default();
        play(&mut items, &changes, 1);
        let anew = items.iter().fold(0_u64, |sum, item| {
            sum.wrapping_add(digest::item(&item.key().unwrap(), item.version()))
        });
        prop_assert_eq!(items.digest(), anew);
        prop_assert_eq!(items.iter().collect::<Items>().digest(), anew);
    }

    #[test]
    fn a_part_kept_up_is_the_part_made_anew(before in steps(60), between in prop::collection::vec(steps(12), 0..4)) {
        let mut items = Items::default();
        play(&mut items, &before, 1);
        let mut part = Narrowed::new(&items, &["default", "a"]);
        for (i, changes) in between.iter().enumerate() {
            play(&mut items, changes, 1000 * (i64::try_from(i).unwrap() + 1));
            part = part.follow(&items);
            let anew = items.for_groups(&["a", "default"]);
            prop_assert_eq!(versions(part.items()), versions(&anew));
            prop_assert_eq!(part.items().digest(), anew.digest());
        }
    }
}

/// These bytes are on the wire between versions: a change here makes every proxy of a fleet ask for a snapshot.
#[test]
fn golden_digests() {
    let ability =
        |credential| Subject::Ability { channel: ChannelId(7), model: Arc::from("gpt-4o"), credential };
    let vectors = [
        (ItemKey::Channel(ChannelId(1)), 1, GOLDEN[0]),
        (ItemKey::Channel(ChannelId(7)), 42, GOLDEN[1]),
        (ItemKey::Credential(CredentialId(7)), 42, GOLDEN[2]),
        (ItemKey::Status(Subject::Channel(ChannelId(7))), 42, GOLDEN[3]),
        (ItemKey::Status(ability(None)), 42, GOLDEN[4]),
        (ItemKey::Status(ability(Some(CredentialId(9)))), 42, GOLDEN[5]),
        (ItemKey::Policy(Arc::from("")), 42, GOLDEN[6]),
        (ItemKey::Policy(Arc::from("default")), 42, GOLDEN[7]),
    ];
    let found: Vec<_> = vectors.iter().map(|(key, version, _)| digest::item(key, *version)).collect();
    let expected: Vec<_> = vectors.iter().map(|(_, _, golden)| *golden).collect();
    assert_eq!(found, expected, "{found:#018x?}");
}

const GOLDEN: [u64; 8] = [
    0x1023_63f1_1b09_c836,
    0x33a5_9342_939b_11f3,
    0xd8ac_049f_3a81_381a,
    0xbe1e_df6d_bb10_890a,
    0x3959_47b8_20f6_09a8,
    0xee0a_5292_b464_600f,
    0x712d_3b86_9025_dfc6,
    0x3634_0001_6695_82f5,
];

#[test]
fn the_digest_is_what_the_protocol_says() {
    use xxhash_rust::xxh3::xxh3_64;
    let mut bytes = vec![3];
    bytes.extend(7_i64.to_le_bytes());
    bytes.extend(b"gpt-4o");
    bytes.extend(9_i64.to_le_bytes());
    bytes.extend(42_i64.to_le_bytes());
    let ability = Subject::Ability {
        channel: ChannelId(7),
        model: Arc::from("gpt-4o"),
        credential: Some(CredentialId(9)),
    };
    assert_eq!(digest::item(&ItemKey::Status(ability), 42), xxh3_64(&bytes));
    let mut bytes = vec![4];
    bytes.extend(xxh3_64(b"default").to_le_bytes());
    bytes.extend(42_i64.to_le_bytes());
    assert_eq!(digest::item(&ItemKey::Policy(Arc::from("default")), 42), xxh3_64(&bytes));
}

#[test]
fn a_status_about_nothing_is_not_held() {
    let mut items = Items::default();
    assert!(!items.insert(Item::Status(Arc::new(pb::Status::default()))));
    assert_eq!((items.len(), items.digest()), (0, 0));
}

#[test]
fn removing_what_is_not_held_changes_nothing() {
    let mut items: Items = [Item::Channel(Arc::new(fixtures::channel(1)))].into_iter().collect();
    let before = items.digest();
    items.remove(&ItemKey::Channel(ChannelId(2)));
    items.remove(&ItemKey::Policy(Arc::from("x")));
    assert_eq!((items.len(), items.digest()), (1, before));
}
