//! Who is in: by a hash of rollout and proxy id, and by labels. Every replica finds the same, with nobody asked.
//!
//! A cohort is the union of the stages that have begun: a proxy that was in stays in, whatever the next stage selects.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64;

/// All of the hash's points.
pub(crate) const ALL: i64 = 1 << 32;

/// The proxies of a rollout that see its candidates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cohort {
    /// Which rollout: cohorts of different ones are independent of each other.
    pub rollout_id: i64,
    /// The stages that have begun.
    pub stages: Vec<Reach>,
}

/// How far one stage reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Labels that a proxy must have.
    pub selector: BTreeMap<String, String>,
    /// Points below it are in; 0 to [`ALL`].
    pub points: i64,
    /// The revision at which it began.
    pub entered: i64,
}

/// A proxy's point, 0 to 2^32 - 1.
pub(crate) fn point(rollout_id: i64, proxy_id: &str) -> i64 {
    i64::try_from(xxh3_64(format!("{rollout_id}/{proxy_id}").as_bytes()) >> 32).unwrap_or(0)
}

/// The points of a share. Percentages outside 0 to 100 are taken as the nearer end.
pub(crate) fn share(percent: i32) -> i64 {
    i64::from(percent.clamp(0, 100)) * ALL / 100
}

/// How far a stage has to reach so that it has at least one of these proxies, if there are any: its share, or as far as the
/// nearest of them. A stage of 0 % has nobody.
pub(crate) fn at_least_one<'a>(
    rollout_id: i64,
    percent: i32,
    eligible: impl Iterator<Item = &'a str>,
) -> i64 {
    let share = share(percent);
    if share == 0 {
        return 0;
    }
    let nearest = eligible.map(|id| point(rollout_id, id)).min();
    nearest.map_or(share, |nearest| share.max(nearest + 1))
}

/// Whether labels are as selected.
pub(crate) fn selected(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

impl Cohort {
    /// Whether a proxy is in.
    pub fn has(&self, proxy_id: &str, labels: &BTreeMap<String, String>) -> bool {
        self.entered(proxy_id, labels).is_some()
    }

    /// The revision from which a proxy is in.
    pub fn entered(&self, proxy_id: &str, labels: &BTreeMap<String, String>) -> Option<i64> {
        let point = point(self.rollout_id, proxy_id);
        let within = |reach: &&Reach| point < reach.points && selected(&reach.selector, labels);
        self.stages.iter().filter(within).map(|reach| reach.entered).min()
    }
}
