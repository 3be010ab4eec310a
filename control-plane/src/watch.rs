//! The registry watch: what streams each proxy its view.

pub mod session;
