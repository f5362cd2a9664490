//! The account that a server runs as. Database servers refuse to run as root; their packages bring accounts.

use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::Path;

use rustix::process::geteuid;

const ACCOUNTS: &str = "/etc/passwd";

/// An account of the system.
#[derive(Debug, Clone)]
pub(super) struct Account {
    name: String,
    user: u32,
    group: u32,
}

impl Account {
    /// The account for a server, which becomes the owner of its folder. If this process runs as root, it is the one of
    /// that name. Otherwise there is none: the server runs with the rights of this process.
    pub(super) fn for_server(name: &str, package: &str, folder: &Path) -> io::Result<Option<Self>> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        let found = find(&fs::read_to_string(ACCOUNTS)?, name);
        let missing = || {
            let text = format!("no account {name}: install the Debian package {package}");
            io::Error::new(io::ErrorKind::NotFound, text)
        };
        let account = found.ok_or_else(missing)?;
        chown(folder, Some(account.user), Some(account.group))?;
        Ok(Some(account))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// A line is `name:password:user:group:…`.
fn find(lines: &str, name: &str) -> Option<Account> {
    lines.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        Some(Account {
            name: name.to_owned(),
            user: fields.nth(1)?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let lines =
            "root:x:0:0:root:/root:/bin/sh\nsqlx:x:7:7::/:/bin/sh\nsql:x:101:104:,,,:/home/sql:/bin/sh\n";
        let account = find(lines, "sql").unwrap();
        assert_eq!((account.name(), account.user, account.group), ("sql", 101, 104));
        assert!(find(lines, "sq").is_none());
    }
}
