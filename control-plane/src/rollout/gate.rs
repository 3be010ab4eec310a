//! What is known of a rollout's stage, and whether that is enough to move on. Pure.

use spareline_proto::admin::v1::Gate;
use spareline_proto::dataplane::v1 as dp;

use super::Cohort;

/// Attempts and failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All.
    pub attempts: i64,
    /// Of those, failed.
    pub failures: i64,
}

/// A connected proxy that the changes concern.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// As it introduced itself.
    pub node: &'a dp::Node,
    /// What it last said it serves.
    pub applied: Option<&'a dp::Position>,
    /// Whether it refuses a candidate.
    pub rejects: bool,
}

/// The evidence of a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// In the cohort and connected.
    pub connected: usize,
    /// Of those, serving the change.
    pub acked: usize,
    /// Of those, refusing it.
    pub rejected: Vec<String>,
    /// Of those, neither yet.
    pub lagging: Vec<String>,
    /// Connected, concerned, and not in the cohort.
    pub outside: usize,
    /// The candidates' attempts since the stage began.
    pub ours: Tally,
    /// The baseline's in the same time.
    pub baseline: Tally,
}

/// What a gate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Move on.
    Open,
    /// Not yet: what is missing, one line each.
    Shut(Vec<String>),
    /// Never: the change does harm.
    Broken(String),
}

impl Tally {
    /// Failures in percent of attempts; nothing where there were none.
    pub fn share(self) -> Option<f64> {
        #[allow(clippy::cast_precision_loss, reason = "a share needs no 2^53rd attempt")]
        (self.attempts > 0).then(|| self.failures as f64 * 100.0 / self.attempts as f64)
    }
}

impl Evidence {
    /// Counts the proxies. `needed`: the newest revision that a candidate was changed at.
    pub fn survey<'a>(
        cohort: &Cohort,
        epoch: &str,
        needed: i64,
        concerned: impl Iterator<Item = Seen<'a>>,
    ) -> Self {
        let mut found = Self::default();
        for proxy in concerned {
            let id = &proxy.node.proxy_id;
            let Some(entered) = cohort.entered(id, &proxy.node.labels) else {
                found.outside += 1;
                continue;
            };
            found.connected += 1;
            let there = proxy.applied.is_some_and(|p| p.epoch == epoch && p.revision >= entered.max(needed));
            if proxy.rejects {
                found.rejected.push(id.clone());
            } else if there {
                found.acked += 1;
            } else {
                found.lagging.push(id.clone());
            }
        }
        found
    }
}

/// Asks a gate.
pub(crate) fn ask(gate: &Gate, evidence: &Evidence) -> Answer {
    if !evidence.rejected.is_empty() {
        let names = named(&evidence.rejected);
        return Answer::Broken(format!("refused by {} of the cohort: {names}", evidence.rejected.len()));
    }
    let mut missing = Vec::new();
    let wanted = match gate.min_acked_percent {
        None | Some(..=0) => 100,
        Some(percent) => u64::from(percent.unsigned_abs()).min(100),
    };
    let (acked, connected) = (evidence.acked as u64, evidence.connected as u64);
    if connected == 0 {
        missing.push("a connected proxy in the cohort".to_owned());
    } else if acked * 100 < connected * wanted {
        missing.push(format!("acknowledgements: {acked} of {connected}, {wanted} % are needed"));
    }
    let least = gate.min_attempts.unwrap_or(0).max(i64::from(gate.max_failure_delta.is_some()));
    if evidence.ours.attempts < least {
        missing.push(format!("attempts through the candidates: {} of {least}", evidence.ours.attempts));
    } else if let Some(allowed) = gate.max_failure_delta {
        // With nobody left on the baseline there is nothing to excuse a failure with.
        let baseline = evidence.baseline.share().or((evidence.outside == 0).then_some(0.0));
        match (evidence.ours.share(), baseline) {
            (Some(ours), Some(baseline)) if ours - baseline > allowed => {
                return Answer::Broken(format!(
                    "{ours:.1} % of the cohort's attempts failed, {baseline:.1} % of the baseline's: more than {allowed} points apart"
                ));
            }
            (Some(_), Some(_)) => {}
            _ => missing.push("attempts through the baseline, to compare with".to_owned()),
        }
    }
    if missing.is_empty() { Answer::Open } else { Answer::Shut(missing) }
}

/// Some of them, for one line.
pub(crate) fn named(ids: &[String]) -> String {
    let more = if ids.len() > 20 { format!(" and {} more", ids.len() - 20) } else { String::new() };
    format!("{}{more}", ids.iter().take(20).map(String::as_str).collect::<Vec<_>>().join(", "))
}
