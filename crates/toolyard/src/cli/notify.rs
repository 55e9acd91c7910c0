//! `toolyard notify`.

use clap::Subcommand;

/// `toolyard notify`.
#[derive(Debug, Subcommand)]
pub enum NotifyCommand {
    /// Show the channels, what each has sent, and what went wrong last
    Status,
    /// Send a test message by a channel, or by all of them
    Test {
        /// The channel's name, or `push` for browsers
        channel: Option<String>,
    },
}
