//! The command line: the server itself, and the subcommands `apply` and `export`, which speak to a running one.
//!
//! Exit codes: 0 done (for `apply`: the registry matches the file, or, with `--dry-run`, the differences were shown);
//! 1 the control plane refused, failed or could not be reached; 2 the file, the flags or the configuration are wrong, and
//! nothing was changed.

mod apply;
mod client;
mod diff;
mod export;
mod flags;
mod plan;
mod secrets;
mod text;

use std::fmt;

use spareline_core::file;
use tonic::Status;
use tonic_types::StatusExt as _;

pub use apply::{Apply, Prune, apply};
pub use export::{Export, export};
pub use flags::{ApplyFlags, Cli, Command, ExportFlags, ServeFlags};

/// Why a subcommand did not do what it was asked for.
#[derive(Debug)]
pub enum Failure {
    /// A flag is wrong.
    Usage(String),
    /// The file is wrong: everything that is, one a line.
    File {
        /// Which.
        name: String,
        /// With lines.
        problems: Vec<String>,
    },
    /// Nobody answers there.
    Unreachable {
        /// Where.
        url: String,
        /// Why.
        why: String,
    },
    /// The control plane said no.
    Refused {
        /// What was tried.
        what: String,
        /// Its answer.
        status: Box<Status>,
    },
    /// The answer could not be written, or something of ours is broken.
    Internal(String),
}

impl Failure {
    /// What the process ends with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::File { .. } => 2,
            Self::Unreachable { .. } | Self::Refused { .. } | Self::Internal(_) => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(why) => f.write_str(why),
            Self::File { name, problems } => {
                let plural = if problems.len() == 1 { "mistake" } else { "mistakes" };
                write!(f, "{name}: {} {plural}, nothing was changed:", problems.len())?;
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
            Self::Unreachable { url, why } => {
                write!(
                    f,
                    "no control plane answers at {url} (hint: is it running? --admin says where): {why}"
                )
            }
            Self::Refused { what, status } => {
                write!(f, "could not {what}: {:?}: {}", status.code(), status.message())
            }
            Self::Internal(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Failure {}

impl From<std::io::Error> for Failure {
    fn from(why: std::io::Error) -> Self {
        Self::Internal(format!("the answer cannot be written: {why}"))
    }
}

impl From<crate::reflect::NotDescribed> for Failure {
    fn from(why: crate::reflect::NotDescribed) -> Self {
        Self::Internal(why.to_string())
    }
}

/// The fields at fault that an INVALID_ARGUMENT names.
fn violations(status: &Status) -> Vec<(String, String)> {
    let details = status.get_details_bad_request();
    details.into_iter().flat_map(|d| d.field_violations).map(|v| (v.field, v.description)).collect()
}
