//! What Spareline decides: pure, without I/O, tasks, clocks or a global random generator.
//! `now` and `rng` are parameters everywhere.

pub mod backoff;
pub mod classify;
pub mod commit;
pub mod errortext;
pub mod ids;
pub mod splice;
pub mod sse;
pub mod words;

pub use ids::{ChannelId, CredentialId, Revision, Subject};
pub use words::{Cause, Class, Endpoint, Provider, Scope};
