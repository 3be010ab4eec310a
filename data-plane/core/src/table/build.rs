//! Rebuilding the lists that a change names.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Candidates, Entry, Layer, Line, Member, Models, Table};
use crate::hash::QuickBuild;
use crate::ids::ChannelId;
use crate::spec::{EndpointSet, ModelSpec};
use crate::words::Endpoint;

/// Changes of any number of channels, gathered so that each list is rebuilt once.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    lists: HashMap<(Arc<str>, Arc<str>), Vec<Change>, QuickBuild>,
}

/// One channel in one list: as it is from now on, or gone.
type Change = (ChannelId, Option<(Arc<Line>, Arc<ModelSpec>)>);

impl Changes {
    /// One channel changes from what it was to what it is.
    pub(crate) fn channel(&mut self, id: ChannelId, before: Option<&Arc<Line>>, after: Option<&Arc<Line>>) {
        if let Some(line) = before {
            self.each(line, |list, _| list.push((id, None)));
        }
        if let Some(line) = after {
            self.each(line, |list, model| {
                let change = (id, Some((line.clone(), model.clone())));
                match list.last_mut() {
                    Some(last) if last.0 == id => *last = change,
                    _ => list.push(change),
                }
            });
        }
    }

    fn each(&mut self, line: &Line, mut with: impl FnMut(&mut Vec<Change>, &Arc<ModelSpec>)) {
        for group in &line.spec.groups {
            for model in &line.spec.models {
                with(self.lists.entry((group.clone(), model.name.clone())).or_default(), model);
            }
        }
    }
}

impl Table {
    /// Makes the changes.
    pub(crate) fn change(&mut self, changes: Changes) {
        for ((group, model), mut changed) in changes.lists {
            changed.sort_unstable_by_key(|(id, _)| *id);
            let mut models = self.group(&group).cloned().unwrap_or_default();
            let before = models.get(&model);
            let kept = before.into_iter().flat_map(|e| e.all.iter());
            let kept = kept.filter(|m| changed.binary_search_by_key(&m.line.spec.id, |(id, _)| *id).is_err());
            let mut members: Vec<_> = kept.map(|m| (m.line.clone(), m.model.clone())).collect();
            members.extend(changed.into_iter().filter_map(|(_, put)| put));
            self.put(group, model, members, &mut models);
        }
    }

    fn put(
        &mut self,
        group: Arc<str>,
        model: Arc<str>,
        mut members: Vec<(Arc<Line>, Arc<ModelSpec>)>,
        models: &mut Models,
    ) {
        if members.is_empty() {
            models.remove(&model);
        } else {
            members.sort_unstable_by_key(|(line, model)| (std::cmp::Reverse(model.priority), line.spec.id));
            models.insert(model, Arc::new(entry(&members)));
        }
        match (self.place(&group), models.is_empty()) {
            (Ok(at), true) => drop(self.groups.remove(at)),
            (Ok(at), false) => self.groups[at].1 = std::mem::take(models),
            (Err(_), true) => {}
            (Err(at), false) => self.groups.insert(at, (group, std::mem::take(models))),
        }
    }
}

/// The lists of one (group, model). Endpoints that the same members have share one list.
fn entry(members: &[(Arc<Line>, Arc<ModelSpec>)]) -> Entry {
    let all = Arc::new(candidates(members.iter()));
    let mut sets: Vec<EndpointSet> = Vec::new();
    for (_, model) in members {
        if !sets.contains(&model.endpoints) {
            sets.push(model.endpoints);
        }
    }
    let mut by_endpoint: [Option<Arc<Candidates>>; Endpoint::ALL.len()] = Default::default();
    for (i, endpoint) in Endpoint::ALL.iter().enumerate() {
        let has = |e: Endpoint| sets.iter().map(move |s| s.has(Some(e)));
        by_endpoint[i] = if has(*endpoint).all(|has| has) {
            Some(all.clone())
        } else if !has(*endpoint).any(|has| has) {
            None
        } else if let Some(same) = Endpoint::ALL[..i].iter().find(|e| has(**e).eq(has(*endpoint))) {
            by_endpoint[*same as usize].clone()
        } else {
            let those = members.iter().filter(|(_, m)| m.endpoints.has(Some(*endpoint)));
            Some(Arc::new(candidates(those)))
        };
    }
    Entry { all, by_endpoint }
}

/// Layers of members that come sorted, the highest priority first.
fn candidates<'a>(members: impl Iterator<Item = &'a (Arc<Line>, Arc<ModelSpec>)>) -> Candidates {
    let mut layers: Vec<Layer> = Vec::new();
    for (line, model) in members {
        let member = Member { line: line.clone(), model: model.clone(), share: model.weight, upto: 0 };
        match layers.last_mut() {
            Some(layer) if layer.priority == model.priority => layer.members.push(member),
            _ => layers.push(Layer { priority: model.priority, members: vec![member], total: 0 }),
        }
    }
    for layer in &mut layers {
        let even = layer.members.iter().all(|m| m.share == 0);
        for member in &mut layer.members {
            member.share = if even { 1 } else { member.share };
            layer.total += u64::from(member.share);
            member.upto = layer.total;
        }
    }
    Candidates { layers }
}
