//! Starting a program that dies with the test process, however that ends.
//!
//! The kernel sends the signal that `setpriv --pdeathsig` asks for when the *thread* that started the program
//! ends. Test threads end early, so one thread that lives as long as the process starts them all. `setpriv`
//! replaces itself by the program: the process id stays the same. (Asking from inside the new process would
//! need unsafe code.)

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread;

struct Order {
    command: Command,
    answer: Sender<io::Result<Child>>,
}

/// Where a program is, or an error that says which Debian package brings it.
pub(super) fn find(program: &str, package: &str) -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
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
        .map_err(|_| io::Error::other("the launcher thread is gone"))?;
    child
        .recv()
        .map_err(|_| io::Error::other("the launcher thread is gone"))?
}
