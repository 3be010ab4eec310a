use std::sync::Arc;

use super::*;
use crate::fixtures::{at, channel, on_ability, on_channel, on_credential, out, throttled};
use crate::items::Item;

fn two_keys() -> pb::Channel {
    pb::Channel { credential_ids: vec![1, 2], ..channel(1) }
}

fn state(channel: &pb::Channel, statuses: Vec<pb::Status>) -> ChannelState {
    let items = statuses.into_iter().map(|s| Item::Status(Arc::new(s))).collect();
    channel_state(&items, channel, &at(1000))
}

#[test]
fn a_channel_is_out_when_its_last_usable_key_is_and_for_the_mildest_reason() {
    let dead = out(on_credential(1), pb::Cause::Credential, 9);
    let one = state(&two_keys(), vec![dead.clone()]);
    assert_eq!((one.cause, one.usable, one.total), (None, 1, 2));
    let limited = throttled(on_credential(2), 900, 1100, true, 9);
    let both = state(&two_keys(), vec![dead, limited]);
    assert_eq!((both.cause, both.usable, both.total), (Some(Cause::Throttled), 0, 2));
    assert_eq!(both.until, Some(at(1100)));
    assert_eq!(both.since, Some(at(900)));
}

#[test]
fn a_throttle_whose_time_has_passed_reads_as_active() {
    for (until, usable) in [(999, 2), (1000, 2), (1001, 1)] {
        let limited = throttled(on_credential(1), 900, until, true, 9);
        assert_eq!(state(&two_keys(), vec![limited]).usable, usable, "until {until}");
    }
}

#[test]
fn its_own_status_comes_first_and_a_channel_without_keys_has_only_that() {
    let own = out(on_channel(1), pb::Cause::Operator, 9);
    assert_eq!(state(&two_keys(), vec![own.clone()]).cause, Some(Cause::Operator));
    assert_eq!(state(&channel(1), vec![own]).cause, Some(Cause::Operator));
    assert_eq!(state(&channel(1), vec![]).cause, None);
}

#[test]
fn a_models_status_takes_out_the_model_and_with_a_key_only_that_key() {
    let with_key = out(on_ability(1, "m", Some(1)), pb::Cause::ModelUnavailable, 9);
    let with_other = out(on_ability(1, "m", Some(2)), pb::Cause::ModelUnavailable, 9);
    let usable = |statuses: Vec<pb::Status>| {
        let items = statuses.into_iter().map(|s| Item::Status(Arc::new(s))).collect();
        model_usable(&items, &two_keys(), "m", &at(1000))
    };
    assert!(usable(vec![with_key.clone()]));
    assert!(!usable(vec![with_key.clone(), with_other]));
    assert!(!usable(vec![out(on_ability(1, "m", None), pb::Cause::ModelUnavailable, 9)]));
    assert!(usable(vec![out(on_ability(1, "n", None), pb::Cause::ModelUnavailable, 9)]));
    assert_eq!(state(&two_keys(), vec![with_key]).cause, None, "never the channel");
}

#[test]
fn what_takes_a_channel_out_is_its_own_status_else_the_mildest_of_all_its_keys() {
    let why = |statuses: &[pb::Status]| {
        let items = statuses.iter().map(|s| Item::Status(Arc::new(s.clone()))).collect();
        channel_out(&items, &two_keys(), &at(1000)).map(|status| status.cause())
    };
    let limited = throttled(on_credential(1), 900, 1100, true, 9);
    let over = throttled(on_credential(1), 900, 1000, true, 9);
    let dead = out(on_credential(2), pb::Cause::Credential, 9);
    let own = out(on_channel(1), pb::Cause::Operator, 9);
    assert_eq!(why(&[]), None);
    assert_eq!(why(std::slice::from_ref(&dead)), None, "one key is left");
    assert_eq!(why(&[over, dead.clone()]), None, "so it is when the other's time is over");
    assert_eq!(why(&[limited.clone(), dead.clone()]), Some(pb::Cause::Throttled), "in whatever order");
    assert_eq!(why(&[limited, dead, own]), Some(pb::Cause::Operator));
}

#[test]
fn a_shared_key_lies_beneath_every_channel_that_lists_it() {
    let lines = [two_keys(), pb::Channel { credential_ids: vec![2], ..channel(2) }, channel(3)];
    let items: Items = lines.map(|line| Item::Channel(Arc::new(line))).into_iter().collect();
    let of = |subject| channels_of(&items, &subject).map(|c| c.channel_id).collect::<Vec<_>>();
    assert_eq!(of(Subject::Credential(CredentialId(2))), [1, 2]);
    assert_eq!(of(Subject::Credential(CredentialId(1))), [1]);
    assert_eq!(of(Subject::Channel(ChannelId(3))), [3]);
    assert_eq!(of(Subject::Ability { channel: ChannelId(2), model: "m".into(), credential: None }), [2]);
}
