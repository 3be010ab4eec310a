//! The operator's story over a real database, with proxies played by rows; and the properties of what decides.

mod harness;
mod pure;
mod story;
