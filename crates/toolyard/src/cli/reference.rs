//! The page `docs/reference/cli.md`: every command with its arguments and options, from the definitions that parse them.

use super::Cli;
use clap::{Arg, ArgAction, Command, CommandFactory};
use std::fmt::Write as _;

const HEAD: &str = "# Commands\n\n\
    <!-- Written by `make docs` from the definitions in crates/toolyard/src/cli. -->\n\n\
    Every command of `toolyard`, with its arguments and options. [The guide](../guide/cli.md) says how commands behave: output,\n\
    exit codes, errors.\n";

/// The page, in Markdown.
pub fn page() -> String {
    let mut root = Cli::command();
    root.build();
    let mut text = HEAD.to_owned();
    options(&mut text, "Options of every command", root.get_arguments().filter(|arg| arg.is_global_set()));
    for command in visible(&root) {
        section(&mut text, &format!("toolyard {}", command.get_name()), command);
    }
    text
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
}

fn section(text: &mut String, name: &str, command: &Command) {
    let about = command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string).unwrap_or_default();
    // Writing to a String cannot fail.
    _ = write!(text, "\n## {name}\n\n{}\n", about.trim_end_matches('.').to_owned() + ".");
    if visible(command).next().is_none() || command.get_positionals().next().is_some() {
        let usage = command.clone().render_usage().to_string();
        _ = write!(text, "\n```text\n{}\n```\n", usage.trim_start_matches("Usage: "));
    }
    options(text, "", own_arguments(command));
    for sub in visible(command) {
        section(text, &format!("{name} {}", sub.get_name()), sub);
    }
}

fn own_arguments(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| {
        !arg.is_global_set() && !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version")
    })
}

fn options<'a>(text: &mut String, heading: &str, arguments: impl Iterator<Item = &'a Arg>) {
    let mut rows = arguments.map(row).peekable();
    if rows.peek().is_none() {
        return;
    }
    if !heading.is_empty() {
        _ = write!(text, "\n## {heading}\n");
    }
    text.push_str("\n| argument | meaning |\n| --- | --- |\n");
    rows.for_each(|row| text.push_str(&row));
}

fn row(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default().replace('\n', " ").replace('|', "\\|");
    let mut extra = String::new();
    if let Some(variable) = arg.get_env() {
        _ = write!(extra, " Environment: `{}`.", variable.to_string_lossy());
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if takes_value(arg) && !defaults.is_empty() {
        _ = write!(extra, " Default: `{}`.", defaults.join(", "));
    }
    let choices: Vec<_> = arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    if takes_value(arg) && !choices.is_empty() {
        _ = write!(extra, " One of {}.", choices.join(", "));
    }
    format!("| `{}` | {}.{extra} |\n", spelling(arg), help.trim_end_matches('.'))
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

/// How the argument is typed: `-y, --yes`, `--args <JSON>`, `<RUN>`.
fn spelling(arg: &Arg) -> String {
    let names: Vec<String> =
        [arg.get_short().map(|short| format!("-{short}")), arg.get_long().map(|long| format!("--{long}"))]
            .into_iter()
            .flatten()
            .collect();
    let value =
        arg.get_value_names().map(|names| names.iter().map(|name| format!("<{name}>")).collect::<Vec<_>>().join(" "));
    match (names.is_empty(), value.filter(|_| takes_value(arg))) {
        (true, value) => value.unwrap_or_else(|| format!("<{}>", arg.get_id().as_str().to_uppercase())),
        (false, None) => names.join(", "),
        (false, Some(value)) => format!("{} {value}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn the_page_of_commands_is_current() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
        let committed = std::fs::read_to_string(&file).unwrap();
        assert!(committed == super::page(), "docs/reference/cli.md is out of date: run `make docs`");
    }
}
