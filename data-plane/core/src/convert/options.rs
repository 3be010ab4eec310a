//! Options by provider.
