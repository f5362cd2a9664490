//! Measures how many responses one core turns into stored records per second, next to the cost of merely scanning them.

use std::hint::black_box;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::de::IgnoredAny;

use crate::hash::hash;
use crate::pack::pack;
use crate::project::{Projection, Scratch};

/// Responses per second on one core.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct ProjectionFigures {
    /// Size of the response in bytes.
    pub answer_bytes: usize,
    /// Size of the kept fields, in canonical form.
    pub kept_bytes: usize,
    /// Size of the stored form.
    pub packed_bytes: usize,
    /// Projection to canonical bytes.
    pub project_per_s: f64,
    /// … and the hash over them: the cost of an unchanged record.
    pub project_hash_per_s: f64,
    /// … and packing: the cost of a changed record.
    pub project_hash_pack_per_s: f64,
    /// Decompression of a gzip response before all that.
    pub gunzip_per_s: f64,
    /// Floor: the parser skips the whole response and keeps nothing.
    pub skip_per_s: f64,
    /// Floor: compares every byte with a quote.
    pub scan_per_s: f64,
}

/// Measures each step on `answer` for a share of `seconds`.
pub fn bench_projection(answer: &[u8], fields: &[String], seconds: f64) -> Result<ProjectionFigures, String> {
    let projection = Projection::compile(fields).map_err(|error| error.to_string())?;
    let mut scratch = Scratch::default();
    let kept = projection
        .project(answer, &mut scratch)
        .map_err(|error| error.to_string())?
        .bytes
        .to_vec();
    let packed = pack(&kept).map_err(|error| error.to_string())?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let zipped = encoder
        .write_all(answer)
        .and_then(|()| encoder.finish())
        .map_err(|error| error.to_string())?;
    let share = Duration::from_secs_f64((seconds / 6.0).clamp(0.01, 60.0));

    // The code above has run each step once; a failure here would show as an impossible speed.
    let mut project = |then: &dyn Fn(&[u8])| {
        per_second(share, || {
            if let Ok(canonical) = projection.project(black_box(answer), &mut scratch) {
                then(canonical.bytes);
            }
        })
    };
    let project_per_s = project(&|bytes| {
        black_box(bytes);
    });
    let project_hash_per_s = project(&|bytes| {
        black_box(hash(1, bytes));
    });
    let project_hash_pack_per_s = project(&|bytes| {
        black_box(hash(1, bytes));
        let _ = black_box(pack(bytes));
    });
    let mut unzipped = Vec::with_capacity(answer.len());
    let gunzip_per_s = per_second(share, || {
        unzipped.clear();
        let _ = black_box(MultiGzDecoder::new(&zipped[..]).read_to_end(&mut unzipped));
    });
    let skip_per_s = per_second(share, || {
        let _ = black_box(serde_json::from_slice::<IgnoredAny>(black_box(answer)));
    });
    let scan_per_s = per_second(share, || {
        black_box(black_box(answer).iter().filter(|byte| **byte == b'"').count());
    });
    Ok(ProjectionFigures {
        answer_bytes: answer.len(),
        kept_bytes: kept.len(),
        packed_bytes: packed.len(),
        project_per_s,
        project_hash_per_s,
        project_hash_pack_per_s,
        gunzip_per_s,
        skip_per_s,
        scan_per_s,
    })
}

fn per_second(at_least: Duration, mut once: impl FnMut()) -> f64 {
    // One warm-up run allocates memory and fills the caches.
    once();
    let begun = Instant::now();
    let mut times = 0_u32;
    loop {
        once();
        times += 1;
        let elapsed = begun.elapsed();
        if elapsed >= at_least {
            return f64::from(times) / elapsed.as_secs_f64();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_measured() {
        let answer = br#"{"a":1,"noise":[1,2,3,"x"],"b":{"c":"d"}}"#;
        let figures = bench_projection(answer, &["a".to_owned(), "b.c".to_owned()], 0.06).unwrap();
        assert_eq!((figures.answer_bytes, figures.kept_bytes), (answer.len(), 21));
        for speed in [
            figures.project_per_s,
            figures.project_hash_per_s,
            figures.project_hash_pack_per_s,
            figures.gunzip_per_s,
            figures.skip_per_s,
            figures.scan_per_s,
        ] {
            assert!(speed > 0.0 && speed.is_finite());
        }
        assert!(bench_projection(b"no json", &["a".to_owned()], 0.06).is_err());
    }
}
