//! The commands `up`, `console`, `gateway` and `devices`.

use clap::{Args, Subcommand};
use std::{net::IpAddr, path::PathBuf};

/// `toolyard up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Address to listen on; any address other than loopback needs a token
    #[arg(long, value_name = "ADDR")]
    pub host: Option<IpAddr>,
    /// Port to listen on; 0 chooses a free one [default: 18789]
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// The token that clients must present [default: the one in state/token, created at the first start]
    #[arg(long, env = "TOOLYARD_TOKEN", value_name = "T", hide_env_values = true)]
    pub token: Option<String>,
}

/// `toolyard console`.
#[derive(Debug, Args)]
pub struct ConsoleArgs {
    /// Draw the address as a QR code for a phone; the code then works for five minutes instead of two
    #[arg(long)]
    pub phone: bool,
    /// The browser may read everything and decide nothing
    #[arg(long, conflicts_with = "approver")]
    pub read_only: bool,
    /// The browser may read everything and answer questions
    #[arg(long)]
    pub approver: bool,
    /// Print the address and do not open a browser
    #[arg(long)]
    pub print: bool,
}

/// The gateway to connect to, and the credentials.
#[derive(Debug, Args)]
pub struct GatewayTarget {
    /// The gateway's URL [default: that of the running Toolyard of this home]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// The token [default: the one in config.toml or state/token]
    #[arg(long, env = "TOOLYARD_TOKEN", value_name = "T", hide_env_values = true)]
    pub token: Option<String>,
    /// Sign with this machine's device key, created at first use; the device token from the gateway is stored and used
    /// later
    #[arg(long)]
    pub device: bool,
    /// A certificate (PEM) to trust in addition to the system's trust store, for wss://: an authority's, or the
    /// server's own
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// How long the connection and the response may take, in milliseconds
    #[arg(long, default_value_t = 30_000, value_name = "MS")]
    pub timeout: u64,
}

/// `toolyard gateway`.
#[derive(Debug, Subcommand)]
pub enum GatewayCommand {
    /// Call one method and print its payload
    Call {
        /// The method, for example health or tools.invoke
        method: String,
        /// Its parameters as a JSON object; `@FILE` reads a file, `-` standard input
        #[arg(long, default_value = "{}", value_name = "JSON")]
        params: String,
        /// The gateway to connect to
        #[command(flatten)]
        target: GatewayTarget,
    },
    /// Check whether a gateway answers, and how quickly
    Probe {
        /// The gateway to connect to
        #[command(flatten)]
        target: GatewayTarget,
    },
}

/// `toolyard devices`.
#[derive(Debug, Subcommand)]
pub enum DevicesCommand {
    /// List paired devices and pairing requests
    List,
    /// Approve a pairing request
    Approve {
        /// The request's id, or the beginning of the device's id
        request: String,
    },
    /// Reject a pairing request
    Reject {
        /// The request's id, or the beginning of the device's id
        request: String,
    },
    /// Revoke a device: invalidate its token and close its connections
    Revoke {
        /// The device's id, or at least its first 8 characters
        device: String,
    },
}
