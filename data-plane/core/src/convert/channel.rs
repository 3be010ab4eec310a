//! Channels from the wire.

use spareline_proto::registry::v1 as pb;

use super::check::Violation;
use crate::spec::ChannelSpec;

/// Validates and compiles a channel.
///
/// # Errors
/// Every mistake at once.
pub fn channel(_wire: &pb::Channel) -> Result<ChannelSpec, Vec<Violation>> {
    todo!()
}
