//! Fakes, harness and end-to-end scenarios.
