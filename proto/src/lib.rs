//! Spareline's wire types, generated from the `.proto` files of this folder.
//!
//! Every message with a `debug_redact` field has a `Debug` that leaves that field out.
#![allow(missing_docs, clippy::pedantic, clippy::large_enum_variant)]

#[cfg(feature = "services")]
pub mod codec;

include!(concat!(env!("OUT_DIR"), "/protos.rs"));
include!(concat!(env!("OUT_DIR"), "/debug.rs"));

pub use spareline::{admin, dataplane, registry};

/// The encoded file descriptor set of all services, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
