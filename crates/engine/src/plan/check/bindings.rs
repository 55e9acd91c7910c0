//! Finds text that looks like a loop binding but is not one. A misspelt binding would otherwise be written into a note.

use super::Checker;
use crate::plan::reference::{Unbound, UnboundPath};
use toolyard_protocol::{Foreach, Step};

/// The names that loops bind unless they say otherwise.
const USUAL_NAMES: [&str; 2] = ["item", "index"];

/// The place of an unbound binding.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Text {
    /// In an argument, which a tool acts on.
    Argument,
    /// In the line for people.
    Preview,
}

impl Checker<'_> {
    /// Reports a `{name}` that the step's loop does not bind.
    ///
    /// | | step with `foreach` | step without |
    /// | --- | --- | --- |
    /// | `item`, `index`, or a name that some loop of the plan binds | error | error |
    /// | another name with a path, `{note.title}` | error | warning |
    /// | another name alone, `{note}` | warning | nothing: LaTeX and code are full of it |
    ///
    /// In a preview every error is a warning: the line is shown, and nothing acts on it.
    pub(super) fn unbound(&mut self, place: String, step: &Step, unbound: Unbound<'_>, text: Text) {
        let looping = step.foreach.as_ref();
        let is_reserved = self.is_loop_name(unbound.name);
        let is_error = match unbound.path {
            UnboundPath::None | UnboundPath::Malformed => is_reserved,
            UnboundPath::Fields => is_reserved || looping.is_some(),
        };
        let is_warning = match unbound.path {
            UnboundPath::None => looping.is_some(),
            UnboundPath::Fields => true,
            UnboundPath::Malformed => false,
        };
        if !is_error && !is_warning {
            return;
        }
        let message = words(unbound, looping);
        if is_error && text == Text::Argument {
            self.error("path", place, Some(step), message);
        } else {
            self.warn("placeholder", place, Some(step), message);
        }
    }

    fn is_loop_name(&self, name: &str) -> bool {
        let binds = |f: &Foreach| f.item_name == name || f.index_name.as_deref() == Some(name);
        USUAL_NAMES.contains(&name) || self.plan.steps.iter().filter_map(|s| s.foreach.as_ref()).any(binds)
    }
}

fn words(unbound: Unbound<'_>, looping: Option<&Foreach>) -> String {
    let Unbound { text, name, path } = unbound;
    let why = match looping {
        Some(f) if f.item_name == name => "the path after the name cannot be read".to_owned(),
        Some(f) => {
            let index = f.index_name.as_deref().unwrap_or("index");
            format!("the loop of this step binds {{{}}} and {{{index}}}", f.item_name)
        }
        None => "this looks like a loop binding, and the step has no foreach".to_owned(),
    };
    let instead = match looping {
        Some(f) if path == UnboundPath::Fields => {
            format!("write {{{}{}, or ", f.item_name, &text[1 + name.len()..])
        }
        _ => "write ".to_owned(),
    };
    format!("{text}: {why}; {instead}{{{text}}} for the text itself")
}
