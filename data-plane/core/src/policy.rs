//! How requests of a group are handled, and what the fleet believes, with every level folded in.
//!
//! Precedence: group policy > global policy > preset > built-in ([`fold`]). The presets are a table ([`presets`]).
//! Limits of channels and model entries come on top, per attempt: [`PartialLimits::over`](crate::limits::PartialLimits).
//! Nothing here validates: that is [`convert::policy`](crate::convert::policy); what is unusable counts as unset.

mod fleet;
mod fold;
pub mod presets;
mod request;
#[cfg(test)]
mod tests;

pub use fleet::FleetPolicy;
pub use fold::effective;
pub use presets::{Preset, Reaction};
pub use request::{Affinity, LayerOrder, RequestPolicy, RetryBudget, StreamCommit};
