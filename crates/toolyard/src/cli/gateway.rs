//! Serving, reaching a gateway, and the devices it lets in.

use clap::{Args, Subcommand};
use std::{net::IpAddr, path::PathBuf};

/// `toolyard up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Address to listen on; anything beyond loopback needs a token
    #[arg(long, value_name = "ADDR")]
    pub host: Option<IpAddr>,
    /// Port to listen on; 0 takes a free one [default: 18789]
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// The token clients must show [default: the one in state/token, made at first start]
    #[arg(long, env = "TOOLYARD_TOKEN", value_name = "T", hide_env_values = true)]
    pub token: Option<String>,
}

/// Where a gateway is and how to get in.
#[derive(Debug, Args)]
pub struct GatewayTarget {
    /// Where it listens [default: where the running Toolyard of this home listens]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// The token [default: the one in config.toml or state/token]
    #[arg(long, env = "TOOLYARD_TOKEN", value_name = "T", hide_env_values = true)]
    pub token: Option<String>,
    /// Sign with this machine's device key, made at first use; the token that the gateway then gives is kept and used
    #[arg(long)]
    pub device: bool,
    /// Trust this certificate (PEM) beside those the system trusts, for wss://: an authority's, or the server's own
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// How long connecting and answering may take
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
        /// Where
        #[command(flatten)]
        target: GatewayTarget,
    },
    /// Find out whether a gateway answers
    Probe {
        /// Where
        #[command(flatten)]
        target: GatewayTarget,
    },
}

/// `toolyard devices`.
#[derive(Debug, Subcommand)]
pub enum DevicesCommand {
    /// List paired devices and those that wait
    List,
    /// Let a device in
    Approve {
        /// The request's id, or the beginning of the device's
        request: String,
    },
    /// Turn a device away
    Reject {
        /// The request's id, or the beginning of the device's
        request: String,
    },
    /// Forget a device: its token is worth nothing and its connections are closed
    Revoke {
        /// The device's id, or its beginning (8 characters or more)
        device: String,
    },
}
