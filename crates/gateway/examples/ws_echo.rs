//! The Gateway's sockets as an echo, for RFC 6455 suites: prints the port and serves until its input ends.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::io::Read;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    let stop = CancellationToken::new();
    let serving = tokio::spawn(toolyard_gateway::echo::serve(listener, stop.clone()));
    let input_ends = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let _ = input_ends.await;
    stop.cancel();
    let _ = tokio::time::timeout(std::time::Duration::from_secs(2), serving).await;
}
