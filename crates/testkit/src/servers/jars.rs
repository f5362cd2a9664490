//! The jars of servers that run on the JVM. A script fetches them once, outside the checkout; a list in the checkout
//! names them.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::launch::{find, mortal};

/// The jars of one server.
#[derive(Debug)]
pub(super) struct Jars {
    /// The folder of its pom and list in `jars`.
    pub(super) name: &'static str,
    /// The jar whose version the folder of the jars is called after.
    pub(super) main: &'static str,
    /// `jars.sha256`: a line per jar, with its sum and its name.
    pub(super) list: &'static str,
    /// Fetches them.
    pub(super) script: &'static str,
}

impl Jars {
    /// A [`mortal`] JVM that starts `class`. Small, and quick to start rather than fast later on.
    pub(super) fn java(&self, params: &JavaParams<'_>) -> io::Result<Command> {
        let mut command = mortal(&find("java", "default-jre-headless")?)?;
        let mut temporary = OsString::from("-Djava.io.tmpdir=");
        temporary.push(params.folder);
        command
            .args([
                "-Xms32m",
                params.heap,
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
            ])
            // Both would leave files of a killed server behind, outside its folder.
            .arg("-XX:-UsePerfData")
            .arg(temporary)
            .args(["-Djava.net.preferIPv4Stack=true", "-Djava.awt.headless=true"])
            .args(params.settings)
            .arg("-cp")
            .arg(self.class_path(&cache()?)?)
            .arg(params.class)
            .current_dir(params.folder);
        Ok(command)
    }

    /// All jars of the list, in its order.
    fn class_path(&self, cache: &Path) -> io::Result<OsString> {
        let folder = cache.join(format!("{}-{}", self.name, self.version()?));
        let jars: Vec<PathBuf> = self.names().map(|jar| folder.join(jar)).collect();
        if let Some(missing) = jars.iter().find(|jar| !jar.is_file()) {
            let text = format!("{} is missing: run {}", missing.display(), self.script);
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        env::join_paths(jars).map_err(io::Error::other)
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.list
            .lines()
            .filter_map(|line| Some(line.split_once("  ")?.1))
    }

    fn version(&self) -> io::Result<&'static str> {
        let of = |jar: &'static str| {
            jar.strip_prefix(self.main)?
                .strip_prefix('-')?
                .strip_suffix(".jar")
        };
        let missing = || io::Error::other(format!("no {} in the list of {}", self.main, self.name));
        self.names().find_map(of).ok_or_else(missing)
    }
}

/// What a JVM runs, and how.
#[derive(Debug)]
pub(super) struct JavaParams<'a> {
    pub(super) class: &'a str,
    /// Such as `-Xmx256m`.
    pub(super) heap: &'a str,
    /// More arguments before the class.
    pub(super) settings: &'a [String],
    /// Where it runs and keeps temporary files.
    pub(super) folder: &'a Path,
}

/// The same as in `scripts/fetch-jars`.
fn cache() -> io::Result<PathBuf> {
    let set = |name: &str| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let cache = cache.ok_or_else(|| io::Error::other("neither XDG_CACHE_HOME nor HOME is set"))?;
    Ok(cache.join("tidegate/jars"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const JARS: Jars = Jars {
        name: "sea",
        main: "sea_2",
        list: "00aa  salt-1.jar\n00bb  sea_2-3.4.jar\n",
        script: "scripts/fetch-sea",
    };

    #[test]
    fn the_class_path_is_the_list_and_a_missing_jar_names_the_script() {
        let cache = tempfile::tempdir().unwrap();
        let folder = cache.path().join("sea-3.4");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("salt-1.jar"), "").unwrap();
        let error = JARS.class_path(cache.path()).unwrap_err().to_string();
        assert!(
            error.contains("sea_2-3.4.jar is missing: run scripts/fetch-sea"),
            "{error}"
        );

        fs::write(folder.join("sea_2-3.4.jar"), "").unwrap();
        fs::write(folder.join("other.jar"), "").unwrap();
        let wanted = env::join_paths([folder.join("salt-1.jar"), folder.join("sea_2-3.4.jar")]).unwrap();
        assert_eq!(JARS.class_path(cache.path()).unwrap(), wanted);
    }
}
