//! What both planes ask of the system before they open many connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process have as many open files as the system allows it: every connection is one, and the usual soft limit of
/// 1024 is there for programs that use `select`. Returns the limit in force; `None`: there is none.
pub fn raise_open_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, ..limit };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => wanted.current,
        Err(_) => limit.current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let raised = raise_open_files();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(raised, limit.current);
        assert_eq!(limit.current, limit.maximum);
    }
}
