//! Metrics of this process from `/proc`. Values that cannot be read are absent.

use std::fs;

/// Clock ticks per second in `/proc`: 100 on every platform that Linux has today.
const TICKS: f64 = 100.0;

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Process {
    pub(crate) resident_bytes: Option<f64>,
    pub(crate) open_fds: Option<f64>,
    pub(crate) max_fds: Option<f64>,
    pub(crate) cpu_seconds: Option<f64>,
}

impl Process {
    pub(crate) fn read() -> Self {
        let text = |file: &str| fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
        Self {
            resident_bytes: resident(&text("status")),
            open_fds: fs::read_dir("/proc/self/fd").ok().map(|all| all.count() as f64),
            max_fds: most_files(&text("limits")),
            cpu_seconds: processor(&text("stat")),
        }
    }
}

fn resident(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1_024.0)
}

fn most_files(limits: &str) -> Option<f64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Parses user and system time, the 14th and 15th field. The second field is a name that may hold spaces.
fn processor(stat: &str) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_this_process_are_read() {
        let process = Process::read();
        assert!(process.resident_bytes.unwrap() > 100_000.0, "{process:?}");
        assert!(process.open_fds.unwrap() >= 3.0, "{process:?}");
        assert!(process.cpu_seconds.is_some(), "{process:?}");
        assert!(
            process.max_fds.unwrap() >= process.open_fds.unwrap(),
            "{process:?}"
        );
    }

    #[test]
    fn names_with_spaces_and_parentheses_are_one_field() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 1 1 1";
        assert_eq!(processor(stat), Some(3.0));
        assert_eq!(processor(""), None);
    }
}
