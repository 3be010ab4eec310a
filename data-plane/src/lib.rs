//! The sidecar: an OpenAI-compatible front that fails over between channels.
