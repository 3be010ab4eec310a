//! What Spareline decides: pure, without I/O, tasks, clocks or a global random generator.
//! `now` and `rng` are parameters everywhere.

pub mod backoff;
pub mod classify;
pub mod commit;
pub mod convert;
pub mod derive;
pub mod duration;
pub mod errortext;
pub mod file;
#[cfg(test)]
pub mod fixtures;
mod hash;
pub mod health;
pub mod ids;
pub mod items;
pub mod limits;
pub mod overlay;
pub mod pick;
pub mod policy;
pub mod reflect;
pub mod secret;
pub mod session;
pub mod spec;
pub mod splice;
pub mod sse;
pub mod table;
pub mod view;
pub mod words;

pub use ids::{ChannelId, CredentialId, Revision, Subject};
pub use secret::Secret;
pub use words::{Cause, Class, Endpoint, Provider, Scope};
