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
