//! Prints how many 300 KB answers one core projects per second. The first argument may be seconds.

use tidegate_source::bench_projection;
use tidegate_upstream::{CORE_FIELDS, sample};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(6.0), |text| text.parse())?;
    let fields: Vec<String> = CORE_FIELDS.iter().map(|field| (*field).to_owned()).collect();
    let answer = sample("가나다", 300_000);
    let figures = bench_projection(answer.as_bytes(), &fields, seconds)?;
    println!("{}", serde_json::to_string_pretty(&figures)?);
    Ok(())
}
