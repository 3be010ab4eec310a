//! What is computed when somebody looks: how each channel stands, by the statuses of the fleet and by what this
//! process found out itself.

use std::{collections::BTreeMap, fmt, sync::Weak, time::SystemTime};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _},
    metrics::gauge::ConstGauge,
};
use spareline_core::derive::{ChannelState, channel_state};

use crate::{metrics::ChannelLabel, state::Shared};

/// Reads the registry in force. Holds no series of its own, so channels that are gone leave nothing behind.
pub struct Channels(pub Weak<Shared>);

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channels")
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

impl Collector for Channels {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(shared) = self.0.upgrade() else { return Ok(()) };
        let view = shared.view();
        let now = prost_types::Timestamp::from(SystemTime::now());
        let states: Vec<(ChannelLabel, ChannelState)> = view
            .lines()
            .filter_map(|line| {
                let channel = view.items().channel(line.spec.id)?;
                let label = ChannelLabel { channel: line.spec.name.clone() };
                Some((label, channel_state(view.items(), channel, &now)))
            })
            .collect();
        let mut gauge = |name: &str, help: &str, value: fn(&ChannelState) -> i64| {
            let mut family =
                encoder.encode_descriptor(name, help, None, ConstGauge::new(0_i64).metric_type())?;
            for (label, state) in &states {
                ConstGauge::new(value(state)).encode(family.encode_family(label)?)?;
            }
            Ok::<_, fmt::Error>(())
        };
        gauge("channel_active", "Whether the channel is in, by the fleet's statuses", |s| {
            i64::from(s.cause.is_none())
        })?;
        gauge("channel_credentials", "Keys the channel lists", |s| i64::from(s.total))?;
        gauge("channel_usable_credentials", "Keys of the channel that can be used", |s| i64::from(s.usable))?;
        gauge("channel_degraded", "Whether the channel is used although it fails", |s| {
            i64::from(s.degraded)
        })?;

        let mut by_cause: BTreeMap<&'static str, i64> = BTreeMap::new();
        for overlay in shared.overlays.list(shared.now()) {
            *by_cause.entry(overlay.cause.as_str()).or_default() += 1;
        }
        let mut family = encoder.encode_descriptor(
            "overlays",
            "What this process does not use for now, by cause",
            None,
            ConstGauge::new(0_i64).metric_type(),
        )?;
        for (cause, count) in by_cause {
            ConstGauge::new(count).encode(family.encode_family(&CauseLabel { cause })?)?;
        }
        let open = shared.health.troubled().iter().filter(|t| t.open_until.is_some()).count();
        let open = ConstGauge::new(i64::try_from(open).unwrap_or(i64::MAX));
        let help = "Channels and models that this process spares after failures in a row";
        open.encode(encoder.encode_descriptor("breakers_open", help, None, open.metric_type())?)?;
        Ok(())
    }
}
