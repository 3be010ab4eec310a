//! The figures, one line each, as they come.

use std::{io::Write as _, time::Duration};

use anyhow::{Result, ensure};

#[derive(Debug, Default)]
pub(crate) struct Table {
    missed: Vec<String>,
    count: usize,
}

impl Table {
    /// One figure: what it is, what it should be, what it is found to be.
    pub(crate) fn figure(&mut self, what: &str, goal: &str, measured: &str, met: bool) -> Result<()> {
        let verdict = if met { "ok" } else { "MISSED" };
        writeln!(std::io::stdout(), "{verdict:<7}{what}: {measured} (goal: {goal})")?;
        self.count += 1;
        if !met {
            self.missed.push(what.to_owned());
        }
        Ok(())
    }

    /// Something to know beside the figures.
    pub(crate) fn note(&self, text: &str) -> Result<()> {
        Ok(writeln!(std::io::stdout(), "       {text}")?)
    }

    /// # Errors
    /// When a goal was missed.
    pub(crate) fn end(self) -> Result<()> {
        ensure!(
            self.missed.is_empty(),
            "{} of {} missed: {}",
            self.missed.len(),
            self.count,
            self.missed.join(", ")
        );
        Ok(())
    }
}

/// Times, sorted.
#[derive(Clone, Debug)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn new(mut times: Vec<Duration>) -> Result<Self> {
        ensure!(!times.is_empty(), "nothing was measured");
        times.sort_unstable();
        Ok(Self(times))
    }

    pub(crate) fn at(&self, percent: usize) -> Duration {
        let last = self.0.len() - 1;
        self.0[(self.0.len() * percent / 100).min(last)]
    }

    pub(crate) fn max(&self) -> Duration {
        self.at(100)
    }

    /// `p50 1.0 ms, p99 2.0 ms, max 3.0 ms`.
    pub(crate) fn text(&self) -> String {
        format!("p50 {}, p99 {}, max {}", ms(self.at(50)), ms(self.at(99)), ms(self.max()))
    }
}

pub(crate) fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}
