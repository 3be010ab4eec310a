//! Every key there is, once: flags, environment and the documented example are checked against this list.

/// One configuration key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// As in the file; upper-cased behind `SPARELINE_CONTROL_` in the environment, with dashes as a flag.
    pub name: &'static str,
    /// One line for humans.
    pub help: &'static str,
}

/// Every key.
pub const KEYS: &[Key] = &[
    Key { name: "admin_listen", help: "where operators are served, ip:port; port 0 takes a free one" },
    Key { name: "data_listen", help: "where proxies are served, ip:port; port 0 takes a free one" },
    Key { name: "database_url", help: "the Postgres to use; none: a private one in the state directory" },
    Key { name: "state_dir", help: "where the private Postgres keeps its data" },
    Key { name: "insecure", help: "allow listening on other than loopback addresses" },
    Key { name: "log_format", help: "auto, json or pretty" },
    Key {
        name: "log_filter",
        help: "which log lines are written, e.g. info or info,spareline_control=debug",
    },
    Key { name: "replica_id", help: "this replica's name in logs, sessions and leases" },
    Key { name: "shutdown_timeout", help: "how long running calls may take to end after a stop signal" },
    Key { name: "database_connections", help: "most connections to the database, 2 to 1000" },
];
