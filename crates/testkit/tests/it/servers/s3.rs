//! The S3 server that other tests rely on works as documented. `curl` signs the requests.

use std::net::TcpStream;
use std::process::Command;

use tidegate_testkit::servers::S3Server;

/// Sends a signed request. The answer is its body, a space, and its status: 000 if there was none.
fn ask(server: &S3Server, secret: &str, path: &str, more: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["--silent", "--max-time", "120", "--write-out", " %{http_code}"])
        .args(["--aws-sigv4", &format!("aws:amz:{}:s3", server.region())])
        .args(["--user", &format!("{}:{secret}", server.access_key())])
        .args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
        .args(more)
        .arg(format!("{}/{path}", server.endpoint()))
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The arguments that put an object, unless it exists.
const PUT: [&str; 8] = [
    "--request",
    "PUT",
    "--header",
    "Content-Type: text/plain",
    "--header",
    "If-None-Match: *",
    "--data-binary",
    "high water",
];

#[test]
fn objects_survive_stop_and_kill() {
    let mut server = S3Server::start(()).unwrap();
    let (folder, port, secret) = (
        server.folder().to_owned(),
        server.port(),
        server.secret_key().to_owned(),
    );
    server.create_bucket("tide").unwrap();
    server.create_bucket("tide").unwrap_err();
    let get = |server: &S3Server| ask(server, &secret, "tide/marks/1", &[]);
    assert!(get(&server).ends_with(" 404"));
    assert_eq!(ask(&server, &secret, "tide/marks/1", &PUT), " 200");
    assert!(ask(&server, &secret, "tide/marks/1", &PUT).ends_with(" 412"));
    assert_eq!(get(&server), "high water 200");
    assert!(ask(&server, &secret, "tide?list-type=2", &[]).contains("<Key>marks/1</Key>"));

    let forged = ask(&server, "0123456789abcdef", "tide/marks/1", &[]);
    assert!(forged.ends_with(" 403"), "{forged}");

    server.stop().unwrap();
    assert_eq!(get(&server), " 000");
    server.restart().unwrap();
    assert_eq!(get(&server), "high water 200");

    server.kill().unwrap();
    assert_eq!(get(&server), " 000");
    server.restart().unwrap();
    assert_eq!(get(&server), "high water 200");

    server.pause().unwrap();
    let impatient = ask(&server, &secret, "tide/marks/1", &["--max-time", "1"]);
    assert_eq!(impatient, " 000");
    server.resume().unwrap();
    assert_eq!(get(&server), "high water 200");

    drop(server);
    assert!(!folder.exists());
    TcpStream::connect(("127.0.0.1", port)).unwrap_err();
}
