//! How a channel's base URL and a path are joined.
