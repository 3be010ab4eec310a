//! The control plane: channels, statuses, probes and the registry watch.
