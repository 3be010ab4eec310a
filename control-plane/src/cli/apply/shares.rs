//! How traffic would be shared once the changes are made: by priority first, by weight within one. Read off the table that
//! proxies pick from, and as configured: nothing counts as out.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use spareline_core::ids::Revision;
use spareline_core::items::{Item, Items};
use spareline_core::table::{Layer, Member};
use spareline_core::view::{Clock, View};
use spareline_proto::registry::v1::Channel;

use super::{Failure, Plan, Registry};

/// Most lines shown.
const MOST: usize = 40;

/// Prints the shares of every model and group that a changed channel serves, or served.
pub(super) fn show(
    plan: &Plan,
    registry: &Registry,
    prune: bool,
    out: &mut (dyn Write + Send),
) -> Result<(), Failure> {
    let mut after: BTreeMap<&str, &Channel> =
        registry.channels.iter().map(|(name, channel)| (name.as_str(), channel)).collect();
    let mut touched = BTreeSet::new();
    for step in &plan.channels {
        step.current.iter().for_each(|current| serves(current, &mut touched));
        serves(&step.wanted, &mut touched);
        after.insert(&step.wanted.name, &step.wanted);
    }
    for extra in plan.extra_channels.iter().filter(|_| prune) {
        serves(extra, &mut touched);
        after.remove(extra.name.as_str());
    }
    let lines = lines(&after.into_values().cloned().collect::<Vec<_>>(), &touched);
    if !lines.is_empty() {
        writeln!(
            out,
            "shares of the traffic then, by priority (lower ones only when nothing above is left):"
        )?;
    }
    for line in lines.iter().take(MOST) {
        writeln!(out, "    {line}")?;
    }
    if lines.len() > MOST {
        writeln!(out, "    ... and {} more", lines.len() - MOST)?;
    }
    Ok(())
}

/// The pairs of group and model a channel serves.
fn serves(channel: &Channel, pairs: &mut BTreeSet<(String, String)>) {
    let default = [String::from("default")];
    let groups = if channel.groups.is_empty() { &default[..] } else { &channel.groups };
    for group in groups {
        pairs.extend(channel.models.iter().map(|entry| (group.clone(), entry.model.clone())));
    }
}

fn lines(channels: &[Channel], pairs: &BTreeSet<(String, String)>) -> Vec<String> {
    let items: Items = (1..)
        .zip(channels)
        .map(|(id, channel)| {
            // New ones have no id yet, and keys have no part in this.
            let spec =
                Channel { channel_id: id, spec_revision: 1, credential_ids: vec![], ..channel.clone() };
            Item::Channel(Arc::new(spec))
        })
        .collect();
    let clock = Clock { server_time: None, now: Duration::ZERO };
    let (view, _) = View::empty(0).replace(&items, "", Revision(1), clock);
    let shown = |(group, model): &(String, String)| {
        let layers: Vec<String> = match view.table().lookup(group, model, None) {
            Some(candidates) => candidates.layers.iter().map(layer).collect(),
            None => vec!["nobody".to_owned()],
        };
        format!("{model} in {group}: {}", layers.join("; "))
    };
    pairs.iter().map(shown).collect()
}

fn layer(layer: &Layer) -> String {
    let percent = |member: &Member| {
        let tenths = (u64::from(member.share) * 1000 + layer.total / 2) / layer.total.max(1);
        match tenths % 10 {
            0 => format!("{} {} %", member.line.spec.name, tenths / 10),
            rest => format!("{} {}.{rest} %", member.line.spec.name, tenths / 10),
        }
    };
    let members: Vec<String> = layer.members.iter().map(percent).collect();
    format!("priority {}: {}", layer.priority, members.join(", "))
}

#[cfg(test)]
mod tests {
    use spareline_proto::registry::v1::ModelEntry;

    use super::*;

    #[test]
    fn shares_are_by_weight_within_a_priority() {
        let channel = |name: &str, priority: i32, weight: Option<u32>, models: &[&str]| Channel {
            name: name.to_owned(),
            provider: "openai".to_owned(),
            base_url: "https://api.example.com/v1".to_owned(),
            models: models
                .iter()
                .map(|model| ModelEntry { model: (*model).to_owned(), ..ModelEntry::default() })
                .collect(),
            priority,
            weight,
            ..Channel::default()
        };
        let channels = [
            channel("a", 5, Some(5), &["m"]),
            channel("b", 5, None, &["m"]),
            channel("c", 5, None, &["m"]),
            channel("drained", 5, Some(0), &["m"]),
            channel("spare", 1, Some(9), &["m", "n"]),
        ];
        let mut pairs = BTreeSet::from([("default".to_owned(), "gone".to_owned())]);
        channels.iter().for_each(|channel| serves(channel, &mut pairs));
        assert_eq!(
            lines(&channels, &pairs),
            [
                "gone in default: nobody",
                "m in default: priority 5: a 71.4 %, b 14.3 %, c 14.3 %, drained 0 %; priority 1: spare 100 %",
                "n in default: priority 1: spare 100 %",
            ]
        );
    }
}
