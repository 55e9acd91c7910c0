//! A server with the transport from before revision 2025-03-26: one event stream carries every response, and an address
//! announced on that stream accepts every message.

use super::{
    http::{Target, is_events},
    mux::{Inbox, LinkError, Mux, ServerUnavailable},
    sse::SseReader,
};
use crate::RpcError;
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use http_body_util::BodyExt;
use std::sync::Arc;

/// Opens the stream and waits for the address.
pub(crate) async fn open(target: Target, inbox: Arc<dyn Inbox>) -> Result<Arc<Mux>, LinkError> {
    let mut extra = HeaderMap::new();
    extra.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
    let response = target.send(Method::GET, &target.uri, extra, None).await?;
    if !response.status().is_success() || !is_events(&response) {
        let why = format!("the server answered {} and no stream of events", response.status());
        let (status, retry_after) = (Some(response.status()), target.asked_wait(&response));
        return Err(LinkError::Unavailable(ServerUnavailable { status, retry_after, ..why.into() }));
    }
    let mut body = response.into_body();
    let mut reader = SseReader::new(target.max_message);
    let mut early = Vec::new();
    let endpoint = 'found: loop {
        let frame = body.frame().await.and_then(Result::ok);
        let frame = frame
            .ok_or_else(|| LinkError::unavailable("the stream ended before it announced its address".to_owned()))?;
        let Some(data) = frame.data_ref() else { continue };
        let mut events = reader.take(data).map_err(LinkError::unavailable)?.into_iter();
        for event in events.by_ref() {
            if event.name == "endpoint" {
                early.extend(events);
                break 'found event.data;
            }
        }
    };
    let endpoint = resolve(&target.uri, endpoint.trim()).ok_or_else(|| {
        LinkError::unavailable(
            "the server announced an address with another origin; its credentials are not sent there".to_owned(),
        )
    })?;
    let (mux, mut outgoing) = Mux::new();
    let target = Arc::new(target);
    let (sender, posting) = (mux.clone(), target.clone());
    tokio::spawn(async move {
        loop {
            let message = tokio::select! { m = outgoing.recv() => m, () = sender.closed.cancelled() => return };
            let Some(message) = message else { return };
            match posting.send(Method::POST, &endpoint, HeaderMap::new(), Some(message)).await {
                Ok(response) if response.status().is_success() => {}
                Ok(response) => sender.close(&format!("the server answered {}", response.status())),
                Err(error) => sender.close(&RpcError::from(error).message),
            }
        }
    });
    let reading = mux.clone();
    tokio::spawn(async move {
        for event in early {
            reading.receive(event.data.as_bytes(), &inbox);
        }
        loop {
            let frame = tokio::select! { frame = body.frame() => frame, () = reading.closed.cancelled() => return };
            let Some(Ok(frame)) = frame else { break };
            let Some(data) = frame.data_ref() else { continue };
            match reader.take(data) {
                Ok(events) => {
                    for event in events.iter().filter(|event| !event.data.is_empty()) {
                        reading.receive(event.data.as_bytes(), &inbox);
                    }
                }
                Err(why) => return reading.close(&why),
            }
        }
        reading.close("the stream of events ended");
    });
    Ok(mux)
}

/// The complete address. It must have the same origin as the stream, because the credentials are valid for that origin
/// only.
fn resolve(base: &Uri, endpoint: &str) -> Option<Uri> {
    if let Ok(uri) = endpoint.parse::<Uri>()
        && uri.scheme().is_some()
    {
        return (uri.scheme() == base.scheme() && uri.authority() == base.authority()).then_some(uri);
    }
    let path = if endpoint.starts_with('/') {
        endpoint.to_owned()
    } else {
        let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{folder}/{endpoint}")
    };
    let mut parts = http::uri::Parts::default();
    parts.scheme = base.scheme().cloned();
    parts.authority = base.authority().cloned();
    parts.path_and_query = path.parse().ok();
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_at_the_same_place() {
        let base: Uri = "http://localhost:80/a/sse".parse().unwrap();
        assert_eq!(resolve(&base, "/messages?id=1").unwrap().to_string(), "http://localhost:80/messages?id=1");
        assert_eq!(resolve(&base, "messages").unwrap().path(), "/a/messages");
        assert!(resolve(&base, "http://localhost:80/x").is_some());
        assert!(resolve(&base, "http://evil.example/x").is_none());
    }
}
