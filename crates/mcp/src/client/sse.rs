//! Parses Server-Sent Events: bytes in, events out.

/// One server-sent event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SseEvent {
    pub(crate) name: String,
    pub(crate) data: String,
    pub(crate) id: Option<String>,
    /// How long to wait before connecting again.
    pub(crate) retry_ms: Option<u64>,
}

/// Reads events from bytes as they come.
pub(crate) struct SseReader {
    buffer: Vec<u8>,
    event: SseEvent,
    has_data: bool,
    limit: usize,
    is_first: bool,
}

impl SseReader {
    /// An event is at most `limit` bytes long.
    pub(crate) fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), event: SseEvent::default(), has_data: false, limit, is_first: true }
    }

    /// Takes bytes; gives the events they complete. `Err` when one is too long.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, String> {
        self.buffer.extend_from_slice(bytes);
        let mut events = Vec::new();
        let mut start = 0;
        while let Some(length) = self.buffer[start..].iter().position(|b| *b == b'\n' || *b == b'\r') {
            let end = start + length;
            let is_pair = self.buffer[end] == b'\r' && self.buffer.get(end + 1) == Some(&b'\n');
            if self.buffer[end] == b'\r' && end + 1 == self.buffer.len() {
                break; // the other half may follow
            }
            let line = String::from_utf8_lossy(&self.buffer[start..end]).into_owned();
            start = end + if is_pair { 2 } else { 1 };
            if let Some(event) = self.line(&line) {
                events.push(event);
            }
        }
        self.buffer.drain(..start);
        if self.buffer.len() + self.event.data.len() > self.limit {
            return Err(format!("an event longer than {} bytes", self.limit));
        }
        Ok(events)
    }

    fn line(&mut self, line: &str) -> Option<SseEvent> {
        let line = if std::mem::take(&mut self.is_first) { line.trim_start_matches('\u{feff}') } else { line };
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            let worth = std::mem::take(&mut self.has_data) || event.id.is_some() || event.retry_ms.is_some();
            return worth.then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event.name = value.to_owned(),
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.has_data = true;
            }
            "id" if !value.contains('\0') => self.event.id = Some(value.to_owned()),
            "retry" => self.event.retry_ms = value.parse().ok(),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_however_the_bytes_are_cut() {
        let text =
            b"\xef\xbb\xbf: hello\r\nevent: endpoint\r\ndata: /x\r\n\r\nid: 7\nretry: 500\n\ndata: a\ndata: b\n\n";
        for size in 1..text.len() {
            let mut reader = SseReader::new(1000);
            let events: Vec<SseEvent> = text.chunks(size).flat_map(|part| reader.take(part).unwrap()).collect();
            assert_eq!(events.len(), 3, "{size}: {events:?}");
            assert_eq!((events[0].name.as_str(), events[0].data.as_str()), ("endpoint", "/x"));
            assert_eq!((events[1].id.as_deref(), events[1].retry_ms), (Some("7"), Some(500)));
            assert_eq!(events[2].data, "a\nb");
        }
        assert!(SseReader::new(10).take(b"data: 0123456789012345").is_err());
    }
}
