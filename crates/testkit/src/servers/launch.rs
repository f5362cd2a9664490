//! Starting a program that dies with the test process, however that ends.
//!
//! `setpriv --pdeathsig` makes the kernel send a signal when the *thread* that started the program ends. Test
//! threads end early, so one thread that lives as long as the process starts them all. `setpriv` replaces itself by
//! the program: the process id stays the same. (Setting the signal inside the new process would need unsafe code.)

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread;

use super::account::Account;

struct Order {
    command: Command,
    answer: Sender<io::Result<Child>>,
}

/// The path of a program, or an error that names its Debian package.
pub(super) fn find(program: &str, package: &str) -> io::Result<PathBuf> {
    find_also(program, package, &[])
}

/// Like [`find`], also in other folders: programs of servers are often not on PATH.
pub(super) fn find_also(program: &str, package: &str, more: &[PathBuf]) -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(more.iter().cloned())
        .map(|folder| folder.join(program))
        .find(|file| file.is_file());
    found.ok_or_else(|| {
        let text = format!("{program} is not on PATH: install the Debian package {package}");
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

/// A command for `program` that is killed when this process ends. Start it with [`launch`].
pub(super) fn mortal(program: &Path) -> io::Result<Command> {
    let mut command = Command::new(find("setpriv", "util-linux")?);
    command.args(["--pdeathsig", "KILL"]).arg(program);
    Ok(command)
}

/// Like [`mortal`], with the rights of another account, if there is one.
pub(super) fn mortal_as(account: Option<&Account>, program: &Path) -> io::Result<Command> {
    let Some(account) = account else {
        return mortal(program);
    };
    let mut command = Command::new(find("setpriv", "util-linux")?);
    command
        .args([
            "--reuid",
            account.name(),
            "--regid",
            account.name(),
            "--init-groups",
        ])
        .args(["--pdeathsig", "KILL"])
        .arg(program);
    Ok(command)
}

/// Runs a [`mortal`] command to its end. Returns its output, which is also part of the error if it fails.
pub(super) fn finish(what: &str, mut command: Command) -> io::Result<String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = launch(command)?.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "{what}: {}: {error}{text}",
        output.status
    )))
}

/// Starts a [`mortal`] command.
pub(super) fn launch(command: Command) -> io::Result<Child> {
    static LAUNCHER: OnceLock<SyncSender<Order>> = OnceLock::new();
    let launcher = LAUNCHER.get_or_init(|| {
        let (sender, orders) = sync_channel::<Order>(16);
        thread::spawn(move || {
            for mut order in orders {
                let _ = order.answer.send(order.command.spawn());
            }
        });
        sender
    });
    let (answer, child) = channel();
    launcher
        .send(Order { command, answer })
        .map_err(|_| io::Error::other("the launcher thread has ended"))?;
    child
        .recv()
        .map_err(|_| io::Error::other("the launcher thread has ended"))?
}
