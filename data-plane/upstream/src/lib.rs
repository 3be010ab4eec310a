//! The only code that speaks to providers.
