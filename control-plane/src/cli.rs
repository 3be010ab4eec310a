//! The command line: `apply` and `export` beside the server itself.

mod yaml;
