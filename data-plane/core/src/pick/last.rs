//! When nothing is usable: the least bad, once a second; else why, and whether waiting would help.

use std::time::Duration;

use rand::Rng;

use super::scene::{Fit, Scene};
use super::{Left, NoneLeft, Reason, draw};
use crate::table::{Candidates, Layer, Member};

/// In which order the least bad are tried. A hint is always obeyed, and what is dead is dead.
const ORDER: [Fit; 3] = [Fit::Busy, Fit::Unhealthy, Fit::Throttled];
/// What to wait for something whose time is not known or due any moment.
const SOON: Duration = Duration::from_secs(1);

/// The least bad of all, if its channel's turn has come.
pub(super) fn resort<'m>(
    scene: &mut Scene<'_>,
    candidates: &'m Candidates,
    rng: &mut impl Rng,
) -> Option<(&'m Layer, &'m Member)> {
    let pick = scene.pick;
    for fit in ORDER {
        for layer in &candidates.layers {
            let fits = |m: &Member| {
                scene.standing(m, Some(pick.tried)).0 == fit
                    && scene.health.as_ref().is_some_and(|h| h.resort_free(m.line.spec.id, pick.now))
            };
            if let Some(member) = draw::member(pick, layer, fits, rng) {
                let claimed =
                    scene.health.as_mut().is_some_and(|h| h.claim_resort(member.line.spec.id, pick.now));
                return claimed.then_some((layer, member));
            }
        }
    }
    None
}

/// Why there is nothing. Throttles count whether this request met them or not; what is unhealthy only where it did not:
/// waiting for what has just failed here is no help.
pub(super) fn none_left<'m>(scene: &Scene<'_>, members: impl Iterator<Item = &'m Member>) -> NoneLeft {
    let now = scene.pick.now;
    let mut earliest: Option<Duration> = None;
    let mut left = Left::default();
    for member in members.filter(|m| m.share > 0) {
        let (fit, until) = scene.standing(member, None);
        let tried = scene.standing(member, Some(scene.pick.tried)).0 == Fit::Tried;
        let count = match fit {
            Fit::Throttled | Fit::Hinted => &mut left.throttled,
            _ if tried => &mut left.tried,
            Fit::Dead => &mut left.disabled,
            Fit::Free | Fit::Trial | Fit::Busy | Fit::Unhealthy | Fit::Tried => &mut left.failing,
        };
        *count += 1;
        let waits = match fit {
            Fit::Throttled | Fit::Hinted => true,
            Fit::Busy | Fit::Unhealthy => !tried,
            Fit::Free | Fit::Trial | Fit::Dead | Fit::Tried => false,
        };
        if waits {
            let wait = until.map_or(SOON, |u| u.saturating_sub(now)).max(SOON);
            earliest = Some(earliest.map_or(wait, |e| e.min(wait)));
        }
    }
    let reason = if earliest.is_some() { Reason::AllThrottled } else { Reason::AllFailed };
    NoneLeft { reason, retry_after: earliest, left }
}
