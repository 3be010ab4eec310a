//! What Spareline decides: pure, without I/O, tasks, clocks or a global random generator.
//! `now` and `rng` are parameters everywhere.

pub mod classify;
pub mod errortext;
pub mod ids;
pub mod words;

pub use ids::{ChannelId, CredentialId, Revision, Subject};
pub use words::{Cause, Class, Endpoint, Provider, Scope};
