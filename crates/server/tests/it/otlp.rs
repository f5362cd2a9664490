//! The service exports traces to a collector.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use tidegate_server::config::TracingConfig;
use tidegate_server::telemetry;
use tracing_subscriber::layer::SubscriberExt;

/// The first line with the headers, and the body.
type Export = (Vec<String>, Vec<u8>);

/// Starts a collector that accepts one export.
fn collector() -> (String, mpsc::Receiver<Export>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, exports) = mpsc::channel();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut stream = BufReader::new(stream);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            head.push(line.trim().to_ascii_lowercase());
        }
        let length = head.iter().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        stream.read_exact(&mut body).unwrap();
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        stream.get_mut().write_all(answer.as_bytes()).unwrap();
        sender.send((head, body)).unwrap();
    });
    (address, exports)
}

fn contains(body: &[u8], text: &str) -> bool {
    body.windows(text.len()).any(|part| part == text.as_bytes())
}

#[test]
fn a_call_of_a_target_is_exported_when_the_service_ends() {
    let (address, exports) = collector();
    let config = TracingConfig {
        otlp_endpoint: Some(address),
    };
    let (layer, guard) = telemetry::layer(&config).unwrap().unwrap();
    let subscriber = tracing_subscriber::registry().with(layer);
    let parent = tracing::subscriber::with_default(subscriber, || {
        assert_eq!(telemetry::traceparent(), None, "there is no span here");
        let span = telemetry::push_span("mail", "customer-a", "job-1", 2);
        span.record("status", 200);
        span.in_scope(telemetry::traceparent)
    });
    drop(guard);
    let (head, body) = exports.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(head[0].starts_with("post /v1/traces "), "{head:?}");
    assert!(
        head.contains(&"content-type: application/x-protobuf".to_owned()),
        "{head:?}"
    );
    for text in ["push mail", "customer-a", "job-1", "service.name", "tidegate"] {
        assert!(contains(&body, text), "{text} is not in the export");
    }
    // The target gets 00-<trace>-<span>-01.
    let parent = parent.unwrap();
    let parts: Vec<&str> = parent.split('-').collect();
    assert_eq!(
        parts.iter().map(|part| part.len()).collect::<Vec<_>>(),
        [2, 32, 16, 2],
        "{parent}"
    );
    assert_eq!(parts[3], "01", "{parent}");
}
