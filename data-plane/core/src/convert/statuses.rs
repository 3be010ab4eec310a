//! Sets of HTTP status codes, as operators write them: `429,500-503`.

/// Status codes and ranges; empty: any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusRanges(Vec<(u16, u16)>);

impl StatusRanges {
    /// Reads codes and ranges, 100 to 599, separated by commas.
    ///
    /// # Errors
    /// What is wrong, for humans.
    pub fn parse(text: &str) -> Result<Self, String> {
        let code = |s: &str| match s.trim().parse::<u16>() {
            Ok(code) if (100..=599).contains(&code) => Ok(code),
            _ => Err(format!("{:?} is not a status code between 100 and 599", s.trim())),
        };
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let range = |part: &str| match part.split_once('-') {
            None => code(part).map(|c| (c, c)),
            Some((from, to)) => match (code(from)?, code(to)?) {
                (from, to) if from <= to => Ok((from, to)),
                (from, to) => Err(format!("{from}-{to} runs backwards")),
            },
        };
        text.split(',').map(range).collect::<Result<_, _>>().map(Self)
    }

    /// Whether the set has this one.
    pub fn contains(&self, status: u16) -> bool {
        self.0.is_empty() || self.0.iter().any(|(from, to)| (*from..=*to).contains(&status))
    }
}
