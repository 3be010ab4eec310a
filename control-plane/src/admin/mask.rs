//! Update masks: which fields of a message change, and which may not.
//!
//! A path is a field's name, with dots into messages and map entries (`attempt_policy.idle_timeout`, `labels.zone`); `*` is
//! everything that may change. A field that is named in the mask and absent from the message is cleared.

use prost_reflect::{DynamicMessage, Kind, MapKey, ReflectMessage as _, Value};
use prost_types::FieldMask;

use crate::reflect::{self, Named, NotDescribed};
use crate::refuse::Violations;

/// Copies what `mask` names from `from` to `to`.
///
/// Mistakes (an absent mask, unknown paths, fields in `fixed`) are added to `violations`; `to` is then not to be used.
///
/// # Errors
/// Where this build is broken.
pub(super) fn apply<M: Named>(
    to: &M,
    from: &M,
    mask: Option<&FieldMask>,
    fixed: &[&str],
    violations: &mut Violations,
) -> Result<M, NotDescribed> {
    let paths = mask.map(|m| m.paths.as_slice()).unwrap_or_default();
    if paths.is_empty() {
        violations.add("update_mask", "is required: name the fields to change, or `*` for all of them");
    }
    let from = reflect::to_tree(from)?;
    let mut to = reflect::to_tree(to)?;
    for (i, path) in paths.iter().enumerate() {
        let top = path.split('.').next().unwrap_or_default();
        if path == "*" {
            let fields: Vec<_> = from.descriptor().fields().filter(|f| !fixed.contains(&f.name())).collect();
            for field in fields {
                copy(&mut to, &from, field.name());
            }
        } else if fixed.contains(&top) {
            violations.add(format!("update_mask.paths[{i}]"), format!("`{path}` cannot be changed"));
        } else if !copy(&mut to, &from, path) {
            let known: Vec<String> = from
                .descriptor()
                .fields()
                .filter(|f| !fixed.contains(&f.name()))
                .map(|f| f.name().to_owned())
                .collect();
            violations.add(
                format!("update_mask.paths[{i}]"),
                format!("`{path}` is not a field; the fields are {}", known.join(", ")),
            );
        }
    }
    reflect::from_tree(&to)
}

/// Copies one path; false where there is no such field.
fn copy(to: &mut DynamicMessage, from: &DynamicMessage, path: &str) -> bool {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let Some(field) = from.descriptor().get_field_by_name(name) else { return false };
    match (rest, field.kind()) {
        (None, _) => {
            if from.has_field(&field) {
                to.set_field(&field, from.get_field(&field).into_owned());
            } else {
                to.clear_field(&field);
            }
            true
        }
        (Some(key), _) if field.is_map() => {
            if key.is_empty() {
                return false;
            }
            let key = MapKey::String(key.to_owned());
            let value = from.get_field(&field).as_map().and_then(|map| map.get(&key)).cloned();
            let Some(map) = to.get_field_mut(&field).as_map_mut() else { return false };
            match value {
                Some(value) => drop(map.insert(key, value)),
                None => drop(map.remove(&key)),
            }
            true
        }
        (Some(rest), Kind::Message(_)) if !field.is_list() => {
            let source = from.get_field(&field).into_owned();
            let (Value::Message(source), Value::Message(target)) = (source, to.get_field_mut(&field)) else {
                return false;
            };
            copy(target, &source, rest)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use spareline_proto::registry::v1::{AttemptPolicy, Channel};

    use super::*;

    fn run(paths: &[&str], from: &Channel) -> (Channel, String) {
        let to = Channel {
            name: "a".into(),
            priority: 3,
            weight: Some(2),
            labels: [("zone".to_owned(), "eu".to_owned()), ("tier".to_owned(), "1".to_owned())].into(),
            ..Channel::default()
        };
        let mask = FieldMask { paths: paths.iter().map(|p| (*p).to_owned()).collect() };
        let mut violations = Violations::default();
        let out = apply(&to, from, Some(&mask), &["etag", "channel_id"], &mut violations).unwrap();
        (out, violations.done().err().map(|s| s.message().to_owned()).unwrap_or_default())
    }

    #[test]
    fn part5_mask_changes_what_it_names_and_clears_what_is_absent() {
        let limits = AttemptPolicy {
            idle_timeout: Some(prost_types::Duration { seconds: 9, nanos: 0 }),
            connect_timeout: Some(prost_types::Duration { seconds: 8, nanos: 0 }),
            ..AttemptPolicy::default()
        };
        let from = Channel {
            name: "b".into(),
            priority: 7,
            attempt_policy: Some(limits),
            labels: [("zone".to_owned(), "us".to_owned())].into(),
            ..Channel::default()
        };
        let (out, why) = run(&["priority", "weight", "attempt_policy.idle_timeout", "labels.zone"], &from);
        assert_eq!(why, "");
        assert_eq!((out.name.as_str(), out.priority, out.weight), ("a", 7, None));
        let limits = out.attempt_policy.unwrap();
        assert_eq!((limits.idle_timeout.unwrap().seconds, limits.connect_timeout), (9, None));
        assert_eq!((out.labels["zone"].as_str(), out.labels["tier"].as_str()), ("us", "1"));
        let (out, _) = run(&["labels.zone"], &Channel::default());
        assert!(!out.labels.contains_key("zone"));
        let (out, why) = run(&["*"], &Channel { channel_id: 5, etag: "x".into(), ..from });
        assert_eq!(
            (out.name.as_str(), out.channel_id, out.etag.as_str(), out.labels.len(), why.as_str()),
            ("b", 0, "", 1, "")
        );
    }

    #[test]
    fn part5_mask_names_every_bad_path() {
        let (_, why) =
            run(&["nonsense", "etag", "models.model", "priority.x", "labels."], &Channel::default());
        for path in 0..5 {
            assert!(why.contains(&format!("update_mask.paths[{path}]")), "{path}: {why}");
        }
        let mut violations = Violations::default();
        apply(&Channel::default(), &Channel::default(), None, &[], &mut violations).unwrap();
        assert!(violations.done().unwrap_err().message().contains("is required"));
        assert!(run(&[], &Channel::default()).1.contains("is required"));
    }
}
