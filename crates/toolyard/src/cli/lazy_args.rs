//! [`LazyArgs`]: arguments that are defined when their command is used.
//!
//! There are more than a hundred commands, and defining all of their arguments takes longer than anything else that a
//! short command does. Only the names of the commands are needed to find out which one was typed.

use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand, builder::Resettable};

/// Arguments or subcommands whose definitions are made when the command line names the command they belong to, or when
/// help, completions or the reference go through all commands.
#[derive(Debug)]
pub struct LazyArgs<T>(pub T);

impl<T: FromArgMatches> FromArgMatches for LazyArgs<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        T::from_arg_matches(matches).map(Self)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        T::from_arg_matches_mut(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }

    fn update_from_arg_matches_mut(&mut self, matches: &mut ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches_mut(matches)
    }
}

impl<T: Args> Args for LazyArgs<T> {
    fn augment_args(command: Command) -> Command {
        command.defer(|command| keeping_about(command, T::augment_args))
    }

    fn augment_args_for_update(command: Command) -> Command {
        command.defer(|command| keeping_about(command, T::augment_args_for_update))
    }
}

impl<T: Subcommand> Subcommand for LazyArgs<T> {
    fn augment_subcommands(command: Command) -> Command {
        command.defer(|command| keeping_about(command, T::augment_subcommands))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        command.defer(|command| keeping_about(command, T::augment_subcommands_for_update))
    }

    fn has_subcommand(name: &str) -> bool {
        T::has_subcommand(name)
    }
}

/// Defines arguments without changing what the list of commands says about their command: the definitions bring the
/// description of their own type.
fn keeping_about(command: Command, define: fn(Command) -> Command) -> Command {
    let resettable =
        |text: Option<&clap::builder::StyledStr>| text.cloned().map_or(Resettable::Reset, Resettable::Value);
    let (about, long_about) = (resettable(command.get_about()), resettable(command.get_long_about()));
    define(command).about(about).long_about(long_about)
}

#[cfg(test)]
mod tests {
    use crate::cli::{Cli, Command, LazyArgs, PlanCommand};
    use clap::{CommandFactory, Parser};

    #[test]
    fn every_command_is_defined_soundly() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_command_keeps_its_description_and_reads_its_arguments() {
        let mut root = Cli::command();
        root.build();
        let plan = root.find_subcommand("plan").unwrap();
        assert!(plan.get_about().unwrap().to_string().starts_with("Check, predict, run"), "{:?}", plan.get_about());
        assert!(plan.get_subcommands().any(|command| command.get_name() == "dry-run"));
        let read = Cli::try_parse_from(["toolyard", "plan", "dry-run", "file.json", "--json"]).unwrap();
        assert!(matches!(read.command, Some(Command::Plan(LazyArgs(PlanCommand::DryRun(_))))) && read.global.json);
    }
}
