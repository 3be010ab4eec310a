//! The side that callers see.

mod answer;
mod body;
mod cors;
pub mod error;
mod front;
mod intake;
mod io;
mod models;
pub mod routes;
pub mod serve;
mod stopping;
mod through;
mod trace;
mod watched;

pub use answer::FrontBody;
pub(crate) use body::overloaded;
pub use io::Connection;
pub use stopping::Stopping;
