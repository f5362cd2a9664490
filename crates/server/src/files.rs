//! Checks the limit of open files. Every connection uses one file, so the process accepts no connection past the limit.

/// Where Linux shows the limit. On other systems it is unknown.
const LIMITS: &str = "/proc/self/limits";

/// Returns a warning if the limit is known and too low.
pub(crate) fn too_few(max_connections: u32) -> Option<String> {
    let limits = std::fs::read_to_string(LIMITS).ok()?;
    compared(open_files(&limits)?, max_connections)
}

fn compared(files: u64, max_connections: u32) -> Option<String> {
    (files < u64::from(max_connections)).then(|| {
        format!(
            "this process may open {files} files, less than server.max_connections = {max_connections}: it cannot accept \
             connections beyond that; raise the limit (ulimit -n, LimitNOFILE) or lower the setting"
        )
    })
}

/// Parses the soft limit, which is the first of the two numbers.
fn open_files(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_below_the_connections_is_reported_with_both_numbers() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max processes             unlimited            unlimited            processes \n\
                      Max open files            1024                 524288               files     \n";
        assert_eq!(open_files(limits), Some(1024));
        assert_eq!(
            open_files("Max open files   unlimited  unlimited  files"),
            Some(u64::MAX)
        );
        assert_eq!(open_files("another line"), None);
        let warning = compared(1024, 10_000).unwrap();
        assert!(
            warning.contains("1024 files") && warning.contains("server.max_connections = 10000"),
            "{warning}"
        );
        assert_eq!(compared(10_000, 10_000), None);
    }
}
