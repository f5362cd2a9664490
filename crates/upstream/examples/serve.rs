//! Serves the simulated provider until the process ends. The first argument may be settings as JSON.

use tidegate_upstream::{Upstream, UpstreamSettings};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let settings = match std::env::args().nth(1) {
        Some(text) => serde_json::from_str(&text)?,
        None => UpstreamSettings::default(),
    };
    let upstream = Upstream::start(settings)?;
    println!("{}", upstream.url());
    loop {
        std::thread::park();
    }
}
