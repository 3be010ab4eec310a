//! How subjects are called in logs and on the debug page: by names that operators know.

use spareline_core::{Subject, view::View};

/// `channel:NAME`, `credential:ID`, `ability:NAME/MODEL` or `ability:NAME/MODEL#ID`; ids where a name is not known.
#[must_use]
pub fn subject(subject: &Subject, view: &View) -> String {
    let name = |id| view.line(id).map_or_else(|| format!("{id}"), |line| line.spec.name.to_string());
    match subject {
        Subject::Channel(id) => format!("channel:{}", name(*id)),
        Subject::Credential(id) => format!("credential:{id}"),
        Subject::Ability { channel, model, credential: None } => {
            format!("ability:{}/{model}", name(*channel))
        }
        Subject::Ability { channel, model, credential: Some(key) } => {
            format!("ability:{}/{model}#{key}", name(*channel))
        }
    }
}
