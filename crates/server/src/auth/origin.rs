//! Checks the host that a request names, and the origin of the page that made a browser send it.
//!
//! A page on the internet can make a browser send requests to this service: by a host name of its own that points here (DNS
//! rebinding), or across origins. The guard refuses both. Other programs send no `Origin`; their key identifies them.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};

use crate::config::ServerConfig;
use crate::problem::{ApiError, ApiResult, BAD_HOST, BAD_ORIGIN};

pub(super) fn changes_something(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Refuses host names that are not names of this service.
pub(super) fn check_host(server: &ServerConfig, request: &Request) -> ApiResult<()> {
    // HTTP/2 puts the name into the URI.
    let in_uri = request.uri().authority().map(|authority| authority.as_str());
    let in_header = request
        .headers()
        .get(header::HOST)
        .map(|host| host.to_str().unwrap_or_default());
    if in_uri.is_none() && in_header.is_none() {
        return Err(ApiError::new(
            BAD_HOST,
            "the request does not name a host; send the header Host",
        ));
    }
    for host in [in_uri, in_header].into_iter().flatten() {
        if !is_ours(server, host) {
            return Err(ApiError::new(
                BAD_HOST,
                format!("{host:?} is not a name of this service; if it should be, add it to server.hosts"),
            ));
        }
    }
    Ok(())
}

/// Whether a host name is one of this service. The port does not matter: a proxy or a tunnel may use another one, and a page
/// cannot choose the name.
fn is_ours(server: &ServerConfig, host: &str) -> bool {
    let name = without_port(host);
    if server.hosts.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return true;
    }
    let listen = server.listen.ip().to_canonical();
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>().map(|address| address.to_canonical()) {
        // DNS cannot redirect a numeric address.
        Ok(address) if listen.is_unspecified() => !address.is_unspecified(),
        Ok(address) if listen.is_loopback() => address.is_loopback(),
        Ok(address) => address == listen,
        Err(_) => name.eq_ignore_ascii_case("localhost") && (listen.is_loopback() || listen.is_unspecified()),
    }
}

fn without_port(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name)
}

/// Refuses requests that the page of another site made a browser send.
pub(super) fn check_origin(server: &ServerConfig, request: &Request) -> ApiResult<()> {
    let headers = request.headers();
    let changes = changes_something(request.method());
    let cross_site = headers
        .get("sec-fetch-site")
        .is_some_and(|site| site.as_bytes().eq_ignore_ascii_case(b"cross-site"));
    // A GET below /events takes a ticket, so an image on any site would put its readers into the queue. The page of a room
    // is allowed, because shops link to it.
    let path = request.uri().path();
    if cross_site && (changes || path.starts_with("/v1") || path.starts_with("/events/")) {
        return Err(ApiError::new(
            BAD_ORIGIN,
            "a page of another site sent this request; send it from a page of this service",
        ));
    }
    let Some(origin) = headers.get(header::ORIGIN) else {
        return Ok(());
    };
    if !changes || same_origin(server, request, origin.to_str().unwrap_or_default()) {
        return Ok(());
    }
    Err(ApiError::new(
        BAD_ORIGIN,
        format!("the origin {origin:?} is not this service; send the request from one of its pages"),
    ))
}

fn same_origin(server: &ServerConfig, request: &Request, origin: &str) -> bool {
    let host = request
        .headers()
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let Some(host) = host.or_else(|| request.uri().authority().map(|authority| authority.as_str())) else {
        return false;
    };
    let Some((scheme, authority)) = origin.split_once("://") else {
        return false;
    };
    let (default_port, same_scheme) = match scheme {
        "http" => (":80", server.tls.is_none()),
        // A configured name may belong to a proxy that terminates TLS.
        "https" => {
            let proxied = server
                .hosts
                .iter()
                .any(|known| known.eq_ignore_ascii_case(without_port(host)));
            (":443", server.tls.is_some() || proxied)
        }
        _ => return false,
    };
    let plain = |authority: &str| {
        authority
            .strip_suffix(default_port)
            .unwrap_or(authority)
            .to_ascii_lowercase()
    };
    same_scheme && plain(host) == plain(authority)
}

/// Whether the browser used TLS, to this service or to a proxy.
pub(crate) fn came_by_tls(server: &ServerConfig, headers: &HeaderMap) -> bool {
    let origin = headers.get(header::ORIGIN);
    server.tls.is_some() || origin.is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn server(listen: &str, hosts: &[&str]) -> ServerConfig {
        ServerConfig {
            listen: listen.parse().unwrap(),
            hosts: hosts.iter().map(|host| (*host).into()).collect(),
            ..ServerConfig::default()
        }
    }

    #[test]
    fn only_names_of_this_service_are_accepted() {
        let loopback = server("127.0.0.1:7171", &["Queue.example.com"]);
        for ours in [
            "127.0.0.1:7171",
            "127.0.0.1",
            "localhost",
            "LOCALHOST:80",
            "localhost.",
            "[::1]:7171",
            "queue.example.com:8443",
        ] {
            assert!(is_ours(&loopback, ours), "{ours}");
        }
        for other in [
            "",
            "evil.example",
            "10.0.0.1",
            "localhost.evil.example",
            "127.0.0.1.evil.example:7171",
            "xqueue.example.com",
            "0.0.0.0",
            ":80",
        ] {
            assert!(!is_ours(&loopback, other), "{other}");
        }
        let everywhere = server("0.0.0.0:7171", &[]);
        for ours in ["10.0.0.1:7171", "localhost", "[2001:db8::1]"] {
            assert!(is_ours(&everywhere, ours), "{ours}");
        }
        assert!(!is_ours(&everywhere, "evil.example"));
        let one = server("10.0.0.1:7171", &[]);
        assert!(is_ours(&one, "10.0.0.1:7171"));
        assert!(!is_ours(&one, "10.0.0.2") && !is_ours(&one, "localhost"));
    }

    #[test]
    fn a_change_must_come_from_a_page_of_this_service() {
        let check = |server: &ServerConfig, method: &str, host: &str, name: &str, value: &str| {
            let request = Request::builder()
                .method(method)
                .uri("/v1/jobs")
                .header("host", host);
            let request = request.header(name, value).body(Body::empty()).unwrap();
            check_origin(server, &request).is_ok()
        };
        let plain = server("127.0.0.1:7171", &["queue.example.com"]);
        let host = "127.0.0.1:7171";
        assert!(check(&plain, "POST", host, "origin", "http://127.0.0.1:7171"));
        assert!(check(
            &plain,
            "POST",
            "LOCALHOST",
            "origin",
            "http://localhost:80"
        ));
        assert!(check(&plain, "GET", host, "origin", "http://evil.example"));
        assert!(check(
            &plain,
            "POST",
            "queue.example.com",
            "origin",
            "https://queue.example.com"
        ));
        for other in [
            "null",
            "",
            "https://127.0.0.1:7171",
            "http://127.0.0.1",
            "http://localhost:7171",
            "http://evil.example",
            "file://127.0.0.1:7171",
        ] {
            assert!(!check(&plain, "POST", host, "origin", other), "{other}");
            assert!(!check(&plain, "PATCH", host, "origin", other), "{other}");
        }
        assert!(!check(&plain, "POST", host, "sec-fetch-site", "cross-site"));
        assert!(!check(&plain, "GET", host, "sec-fetch-site", "cross-site"));
        assert!(check(&plain, "POST", host, "sec-fetch-site", "same-origin"));
    }

    #[test]
    fn a_page_of_another_site_takes_no_ticket_and_may_link_to_the_room() {
        let server = server("127.0.0.1:7171", &[]);
        let check = |path: &str, site: &str| {
            let request = Request::builder().uri(path).header("sec-fetch-site", site);
            check_origin(&server, &request.body(Body::empty()).unwrap()).is_ok()
        };
        for (path, linked) in [
            ("/events/concert/tickets/waiting", false),
            ("/v1/rooms/concert/ticket", false),
            ("/rooms/concert?token=x", true),
        ] {
            assert_eq!(check(path, "cross-site"), linked, "{path}");
            assert!(check(path, "same-origin") && check(path, "none"), "{path}");
        }
    }
}
