//! Without a control plane: the registry is a file of channels, the one that `spareline-control apply` reads.
//!
//! The file is looked at twice a second and read again once it has changed and then stood still; one that is wrong
//! changes nothing and is told, with lines. What a line does wrong makes local overlays only: nobody is reported to.
//! Channels keep their ids over changes and restarts, so counts, overlays and affinity stay.

mod read;
mod registry;
#[cfg(test)]
mod tests;

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use spareline_core::{Revision, file::Problem, session::Published, view::Clock};
use tokio::time::{Instant, sleep_until};

use crate::{config::Config, state::Shared, watch::changes};

use read::{Reading, Stamp};
use registry::Registry;

/// What the epoch of such a registry begins with.
pub(crate) const EPOCH: &str = "standalone-";
/// Between two looks.
const EVERY: Duration = Duration::from_millis(500);

/// The file, and what was made of it.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    registry: Registry,
    /// What the files looked like at the last look, and whether that was taken in (or refused) already.
    stamp: Stamp,
    done: bool,
    /// The content that was taken in or refused last.
    seen: Option<u64>,
}

/// Reads the file of channels and puts it in force. `None`: there is a control plane instead.
///
/// # Errors
/// The file cannot be used, and there is no last known good registry to serve from meanwhile.
pub fn begin(shared: &Shared) -> io::Result<Option<Source>> {
    let Some(path) = shared.config.standalone_file.clone() else { return Ok(None) };
    shared.spool.close();
    let mut source =
        Source { registry: Registry::new(), stamp: Stamp::default(), done: true, seen: None, path };
    let reading = Reading::of(&source.path);
    match source.take(shared, reading) {
        Err(problems) if !shared.is_ready() => {
            Err(io::Error::other(format!("{} cannot be used:{}", source.path.display(), listed(&problems))))
        }
        _ => Ok(Some(source)),
    }
}

/// Whether the file of channels can be used; for `--check-config`.
///
/// # Errors
/// Everything that is wrong with it, with lines.
pub fn check(config: &Config) -> io::Result<()> {
    let Some(path) = &config.standalone_file else { return Ok(()) };
    let made = Reading::of(path).outcome.and_then(|found| Registry::new().make(found, &config.groups));
    made.map(drop).map_err(|problems| {
        io::Error::other(format!("{} cannot be used:{}", path.display(), listed(&problems)))
    })
}

/// Follows the file until dropped.
pub async fn follow(shared: Arc<Shared>, mut source: Source) {
    loop {
        sleep_until(Instant::now() + EVERY).await;
        let stamp = source.stamp.again();
        if stamp != source.stamp {
            // Somebody may be in the middle of writing it: once more.
            source.stamp = stamp;
            source.done = false;
            continue;
        }
        if source.done {
            if source.registry.is_current() {
                shared.confirm();
            }
            continue;
        }
        let path = source.path.clone();
        let Ok(reading) = tokio::task::spawn_blocking(move || Reading::of(&path)).await else { return };
        let _ = source.take(&shared, reading);
    }
}

impl Source {
    /// Puts what was read in force, or says why not.
    fn take(&mut self, shared: &Shared, reading: Reading) -> Result<(), Vec<Problem>> {
        // Secret files count from the moment they are named.
        let unchanged = self.stamp == reading.stamp;
        (self.stamp, self.done) = (reading.stamp, unchanged || self.seen.is_none());
        if self.seen.replace(reading.hash) == Some(reading.hash) {
            return Ok(());
        }
        let made = reading.outcome.and_then(|found| self.registry.make(found, &shared.config.groups));
        let published = made.and_then(|items| {
            let before = shared.view();
            let revision = Revision(self.registry.revision());
            let clock = Clock { server_time: None, now: shared.now() };
            let (view, rejections) = before.replace(&items, self.registry.epoch(), revision, clock);
            let problems: Vec<_> =
                rejections.iter().map(|r| problem(format!("{:?}: {}", r.key, r.message))).collect();
            if !problems.is_empty() {
                return Err(problems);
            }
            let delta = before.items().diff(view.items());
            Ok(Published { view: Arc::new(view), before, delta, snapshot: true, rejections })
        });
        match published {
            Ok(published) => {
                shared.publish(published.view.clone());
                shared.confirm();
                self.registry.taken();
                changes::log(shared, &published);
                Ok(())
            }
            Err(problems) => {
                self.registry.refused();
                shared.metrics.registry_file_failures.inc();
                tracing::error!(
                    event = "channels_file_refused",
                    file = %self.path.display(),
                    problems = problems.len(),
                    "{} is not used, what is in force stays:{}", self.path.display(), listed(&problems)
                );
                Err(problems)
            }
        }
    }
}

/// A problem that stands nowhere in particular.
fn problem(problem: String) -> Problem {
    Problem { line: 0, column: 0, path: String::new(), problem }
}

fn listed(problems: &[Problem]) -> String {
    problems.iter().map(|p| format!("\n  {p}")).collect()
}
