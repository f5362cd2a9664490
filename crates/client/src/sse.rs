//! A parser of server-sent events, as the HTML standard defines them.

/// Limit: bytes of one event. The largest are the statistics of a system with very many queues.
const MAX_EVENT: usize = 16 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Event {
    /// `message` if the sender named none.
    pub(crate) name: String,
    pub(crate) data: String,
}

/// Reads a stream in pieces that may end anywhere.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    /// A line feed right after a carriage return ends no line of its own.
    after_return: bool,
    begun: bool,
    name: String,
    data: String,
    has_data: bool,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event has more than {MAX_EVENT} bytes")]
pub(crate) struct TooLong;

impl Parser {
    /// Returns the events that this piece completes.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<Vec<Event>, TooLong> {
        let mut events = Vec::new();
        for &byte in piece {
            match byte {
                b'\n' if self.after_return => self.after_return = false,
                b'\n' | b'\r' => {
                    self.after_return = byte == b'\r';
                    self.end_line(&mut events);
                }
                byte => {
                    self.after_return = false;
                    self.line.push(byte);
                    if self.line.len() + self.data.len() > MAX_EVENT {
                        return Err(TooLong);
                    }
                }
            }
        }
        Ok(events)
    }

    fn end_line(&mut self, events: &mut Vec<Event>) {
        let bytes = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let mut line = &*text;
        if !self.begun {
            self.begun = true;
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            let name = std::mem::take(&mut self.name);
            let data = std::mem::take(&mut self.data);
            // Without data there is no event.
            if std::mem::take(&mut self.has_data) {
                let name = if name.is_empty() { "message".into() } else { name };
                events.push(Event { name, data });
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.name = value.to_owned(),
            "data" => {
                if self.has_data {
                    self.data.push('\n');
                }
                self.data.push_str(value);
                self.has_data = true;
            }
            // Comments keep the connection alive. The service uses neither `id` nor `retry`.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, data: &str) -> Event {
        Event {
            name: name.into(),
            data: data.into(),
        }
    }

    #[test]
    fn events_are_the_same_wherever_the_stream_is_cut() {
        let stream = "\u{feff}: hello\n\nevent: stats\ndata: {\"a\":\ndata:1}\r\n\r\ndata\rdata: é\r\r:\n\nevent: empty\n\n\
                      id: 7\nretry: 10\ndata: last\n\nevent: cut\ndata: off";
        let expected = [
            event("stats", "{\"a\":\n1}"),
            event("message", "\né"),
            event("message", "last"),
        ];
        for size in 1..stream.len() {
            let mut parser = Parser::default();
            let mut seen = Vec::new();
            for piece in stream.as_bytes().chunks(size) {
                seen.extend(parser.feed(piece).unwrap());
            }
            assert_eq!(seen, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; 1024 * 1024];
        let outcome = (0..17).try_for_each(|_| parser.feed(&piece).map(drop));
        assert_eq!(outcome, Err(TooLong));
    }
}
