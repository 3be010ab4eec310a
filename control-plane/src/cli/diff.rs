//! What differs between a message as it is and as it should be.

use std::collections::BTreeSet;

use prost_reflect::{DynamicMessage, Kind, MapKey, ReflectMessage as _, Value};
use spareline_core::spec::DEFAULT_GROUP;
use spareline_proto::registry::v1::{Channel, Policy};

use super::file::{CHANNEL_HIDDEN, POLICY_HIDDEN};
use super::text;
use crate::reflect::{self, Named, NotDescribed};

/// One field that differs, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// Such as `attempt_policy.idle_timeout`.
    pub(super) path: String,
    /// As it is; `None`: unset.
    pub(super) old: Option<String>,
    /// As it should be; `None`: unset.
    pub(super) new: Option<String>,
}

/// All fields that differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Diff {
    pub(super) changes: Vec<Change>,
    /// Top-level names, for an update mask.
    pub(super) mask: BTreeSet<String>,
}

/// A message that has more than one way to say the same.
pub(super) trait Canonical: Named + Clone {
    /// Fields that are not compared.
    const HIDDEN: &'static [&'static str];

    /// The one way to say it.
    fn canonical(self) -> Self;
}

impl Canonical for Channel {
    const HIDDEN: &'static [&'static str] = CHANNEL_HIDDEN;

    fn canonical(mut self) -> Self {
        if self.groups.is_empty() {
            self.groups.push(DEFAULT_GROUP.to_owned());
        }
        self.groups.sort();
        self.groups.dedup();
        self.endpoints.sort_unstable();
        self.endpoints.dedup();
        self.weight.get_or_insert(1);
        self.multiplier.get_or_insert(1.0);
        for model in &mut self.models {
            if model.upstream_model == model.model {
                model.upstream_model.clear();
            }
            model.endpoints.sort_unstable();
            model.endpoints.dedup();
            model.attempt_policy = model.attempt_policy.take().filter(|p| *p != <_>::default());
        }
        self.attempt_policy = self.attempt_policy.filter(|p| *p != <_>::default());
        self.options = self.options.filter(|o| *o != <_>::default());
        self
    }
}

impl Canonical for Policy {
    const HIDDEN: &'static [&'static str] = POLICY_HIDDEN;

    fn canonical(mut self) -> Self {
        self.attempt_policy = self.attempt_policy.filter(|p| *p != <_>::default());
        self.affinity = self.affinity.filter(|p| *p != <_>::default());
        self.stream = self.stream.filter(|p| *p != <_>::default());
        self.error_text = self.error_text.filter(|p| *p != <_>::default());
        self.fleet = self.fleet.filter(|p| *p != <_>::default());
        self
    }
}

/// Compares two messages.
///
/// # Errors
/// Where this build is broken.
pub(super) fn diff<M: Canonical>(old: &M, new: &M) -> Result<Diff, NotDescribed> {
    let old = visible(old)?;
    let new = visible(new)?;
    let mut changes = Vec::new();
    compare("", &old, &new, &mut changes);
    let top = |c: &Change| c.path.split('.').next().unwrap_or_default().to_owned();
    let mask = changes.iter().map(top).collect();
    Ok(Diff { changes, mask })
}

/// The message as text, without what a file does not set.
///
/// # Errors
/// Where this build is broken.
pub(super) fn block<M: Canonical>(message: &M, indent: usize) -> Result<String, NotDescribed> {
    let mut out = String::new();
    text::block(&visible(message)?, indent, &mut out);
    Ok(out)
}

fn visible<M: Canonical>(message: &M) -> Result<DynamicMessage, NotDescribed> {
    let mut tree = reflect::to_tree(&message.clone().canonical())?;
    for field in M::HIDDEN {
        tree.clear_field_by_name(field);
    }
    Ok(tree)
}

fn compare(path: &str, old: &DynamicMessage, new: &DynamicMessage, changes: &mut Vec<Change>) {
    for field in old.descriptor().fields() {
        let has = (old.has_field(&field), new.has_field(&field));
        let values = (old.get_field(&field), new.get_field(&field));
        if has == (false, false) || (has == (true, true) && values.0 == values.1) {
            continue;
        }
        let path = if path.is_empty() { field.name().to_owned() } else { format!("{path}.{}", field.name()) };
        match (field.kind(), values.0.as_ref(), values.1.as_ref()) {
            (kind, Value::Map(a), Value::Map(b)) => {
                let kind =
                    kind.as_message().map_or(Kind::String, |entry| entry.map_entry_value_field().kind());
                let keys: BTreeSet<&str> = a.keys().chain(b.keys()).filter_map(MapKey::as_str).collect();
                for key in keys {
                    let of = |m: &std::collections::HashMap<MapKey, Value>| {
                        m.get(&MapKey::String(key.to_owned())).map(|v| text::inline(v, &kind))
                    };
                    if of(a) != of(b) {
                        changes.push(Change { path: format!("{path}.{key}"), old: of(a), new: of(b) });
                    }
                }
            }
            (Kind::Message(of), Value::Message(a), Value::Message(b))
                if of.full_name() != "google.protobuf.Duration" =>
            {
                compare(&path, a, b, changes);
                // Set but empty beside unset: nothing inside differs, and nothing means less than that.
            }
            (_, a, b) => changes.push(Change {
                path,
                old: has.0.then(|| text::inline_field(a, &field)),
                new: has.1.then(|| text::inline_field(b, &field)),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use spareline_proto::registry::v1::{AttemptPolicy, ChannelOptions, ModelEntry};

    use super::*;

    fn channel() -> Channel {
        Channel {
            name: "a".into(),
            models: vec![ModelEntry { model: "m".into(), ..ModelEntry::default() }],
            ..Channel::default()
        }
    }

    #[test]
    fn part5_diff_sees_no_difference_in_two_ways_to_say_the_same() {
        let stored = Channel {
            channel_id: 4,
            etag: "x".into(),
            spec_revision: 9,
            credential_ids: vec![1],
            groups: vec!["default".into()],
            weight: Some(1),
            multiplier: Some(1.0),
            options: Some(ChannelOptions::default()),
            ..channel()
        };
        assert_eq!(diff(&stored, &channel()).unwrap(), Diff::default());
    }

    #[test]
    fn part5_diff_names_paths_old_and_new() {
        let old =
            Channel { weight: Some(0), labels: [("zone".to_owned(), "eu".to_owned())].into(), ..channel() };
        let new = Channel {
            attempt_policy: Some(AttemptPolicy {
                idle_timeout: Some(prost_types::Duration { seconds: 90, nanos: 0 }),
                ..AttemptPolicy::default()
            }),
            ..channel()
        };
        let diff = diff(&old, &new).unwrap();
        let shown: Vec<String> =
            diff.changes.iter().map(|c| format!("{} {:?} {:?}", c.path, c.old, c.new)).collect();
        assert_eq!(
            shown,
            [
                "weight Some(\"0\") Some(\"1\")",
                "attempt_policy.idle_timeout None Some(\"90s\")",
                "labels.zone Some(\"eu\") None",
            ]
        );
        assert_eq!(diff.mask.into_iter().collect::<Vec<_>>(), ["attempt_policy", "labels", "weight"]);
    }
}
