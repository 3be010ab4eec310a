//! Drawing a member of a layer and one of its keys.

use std::sync::Arc;

use rand::{Rng, RngExt as _};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::scene::{Fit, Scene};
use super::{Pick, Tried};
use crate::spec::{Credential, CredentialOrder};
use crate::table::{Layer, Member};

/// Weighted draws before every member is looked at.
const BLIND: usize = 4;

/// A member of the layer that `fits` accepts: by weight, or by the affinity key.
pub(super) fn member<'m>(
    pick: &Pick<'_>,
    layer: &'m Layer,
    mut fits: impl FnMut(&Member) -> bool,
    rng: &mut impl Rng,
) -> Option<&'m Member> {
    if let Some(name) = pick.pinned {
        return layer.members.iter().find(|m| *m.line.spec.name == *name && fits(m));
    }
    if let Some(key) = pick.affinity {
        return by_key(key, layer, fits);
    }
    // Most members fit most of the time: draw first, look then. Drawing until one fits has the same odds as
    // drawing among those that fit.
    for _ in 0..BLIND {
        let dice = rng.random_range(0..layer.total.max(1));
        let drawn = layer.members.get(layer.members.partition_point(|m| m.upto <= dice))?;
        if fits(drawn) {
            return Some(drawn);
        }
    }
    let fitting: Vec<_> = layer.members.iter().filter(|m| m.share > 0 && fits(m)).collect();
    let total: u64 = fitting.iter().map(|m| u64::from(m.share)).sum();
    let mut dice = rng.random_range(0..total.max(1));
    fitting.into_iter().find(|m| {
        let hit = dice < u64::from(m.share);
        dice = dice.saturating_sub(u64::from(m.share));
        hit
    })
}

/// Weighted rendezvous: the same key meets the same channel on every machine.
fn by_key<'m>(key: &str, layer: &'m Layer, mut fits: impl FnMut(&Member) -> bool) -> Option<&'m Member> {
    let mut best: Option<(f64, &Member)> = None;
    for member in layer.members.iter().filter(|m| m.share > 0) {
        let score = score(key, member.line.spec.id.0, member.share);
        if best.is_none_or(|(top, _)| score > top) && fits(member) {
            best = Some((score, member));
        }
    }
    best.map(|(_, member)| member)
}

/// The key's favourite of a layer, whether it fits or not.
pub(super) fn favourite<'m>(key: &str, layer: &'m Layer) -> Option<&'m Member> {
    by_key(key, layer, |_| true)
}

/// One of the member's usable keys, no worse than `worst`: by rank, by the affinity key, or at random.
pub(super) fn key(
    scene: &Scene<'_>,
    member: &Member,
    tried: Option<&Tried>,
    worst: Fit,
    rng: &mut impl Rng,
) -> Option<Arc<Credential>> {
    let keys = &member.line.keys;
    let ranked = member.line.spec.options.credential_order == CredentialOrder::Rank;
    if scene.health.is_none()
        && scene.pick.affinity.is_none()
        && tried.is_none_or(|t| t.credentials.is_empty())
    {
        // Nothing speaks against any of them.
        let drawn = if ranked || keys.len() < 2 { 0 } else { rng.random_range(0..keys.len()) };
        return keys.get(drawn).cloned();
    }
    let outs = scene.pick.view.outs(member.line.spec.id);
    let fits = |key: &Credential| scene.key(member, outs, key, tried, &mut None).0 <= worst;
    if keys.len() == 1 || ranked {
        return keys.iter().find(|key| fits(key)).cloned();
    }
    let mut chosen: Option<(f64, &Arc<Credential>)> = None;
    for key in keys.iter().filter(|key| fits(key)) {
        let score = match scene.pick.affinity {
            Some(affinity) => score(affinity, key.id.0, 1),
            None => rng.random::<f64>(),
        };
        if chosen.is_none_or(|(top, _)| score > top) {
            chosen = Some((score, key));
        }
    }
    chosen.map(|(_, key)| key.clone())
}

/// The higher the better; over all keys, an id is on top as often as its weight says. `-weight / ln(u)` with `u` uniform
/// in (0, 1), but without the machine's own logarithm, which may differ in the last bit.
fn score(key: &str, id: i64, weight: u32) -> f64 {
    let hash = xxh3_64_with_seed(key.as_bytes(), id.cast_unsigned());
    let uniform = ((hash >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -f64::from(weight) / ln(uniform)
}

/// The natural logarithm of a number in (0, 1), by basic arithmetic alone: the same bits everywhere.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as f64 - 1023.0;
    let mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    // ln(m) = 2 artanh(s) with s = (m - 1) / (m + 1) <= 1/3: nine terms are good for 1e-10.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let series = (0..9).rev().fold(0.0, |sum, k| sum * square + 1.0 / f64::from(2 * k + 1));
    exponent * std::f64::consts::LN_2 + 2.0 * s * series
}
