//! What is looked at before any route: hosts, foreign pages, and what every answer says to browsers.

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use crate::problem::Problem;

/// What a page may do. Nothing from another host, nothing inline, no text that becomes code.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// For bytes that somebody else has written: even opened in a browser, they are nothing.
pub(crate) const SANDBOX: &str = "sandbox; default-src 'none'; frame-ancestors 'none'";

pub(crate) fn secure(headers: &mut HeaderMap) {
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("x-frame-options", "DENY"),
        ("cache-control", "no-store"),
    ] {
        headers.entry(HeaderName::from_static(name)).or_insert(HeaderValue::from_static(value));
    }
}

/// Whether anybody may ask under this name while there is no login.
pub(crate) fn check_host(parts: &Parts, hosts: &[String]) -> Result<(), Problem> {
    let host = host_of(parts).unwrap_or_default().to_ascii_lowercase();
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => &host,
    };
    let is_known = ["localhost", "127.0.0.1", "[::1]"].contains(&without_port)
        || hosts.iter().any(|known| known == "*" || *known == host || known == without_port);
    if is_known {
        return Ok(());
    }
    Err(Problem::forbidden(
        "unknown-host",
        "without a login, only requests to localhost are answered, and to hosts that are named",
    ))
}

fn host_of(parts: &Parts) -> Option<&str> {
    let named = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    named.or_else(|| parts.uri.authority().map(|authority| authority.as_str()))
}

/// Whether a change was asked for by our own page, or by a program. A browser tells where a request comes from.
pub(crate) fn check_origin(parts: &Parts, hosts: &[String]) -> Result<(), Problem> {
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    let foreign = || Err(Problem::forbidden("cross-origin", "another page has sent this; nothing was done"));
    if let Some(site) = parts.headers.get("sec-fetch-site") {
        return if site == "same-origin" { Ok(()) } else { foreign() };
    }
    let Some(origin) = parts.headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default().to_ascii_lowercase();
    let origin = origin.split_once("://").map_or("", |(_, host)| host);
    let host = host_of(parts).unwrap_or_default().to_ascii_lowercase();
    if !origin.is_empty() && (origin == host || hosts.iter().any(|known| known == origin)) { Ok(()) } else { foreign() }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn parts(method: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn without_a_login_only_known_hosts_are_answered() {
        let hosts = ["tasks.example.com".to_owned()];
        for (host, known) in [
            ("localhost", true),
            ("LOCALHOST:9878", true),
            ("127.0.0.1:1", true),
            ("[::1]:1", true),
            ("[::1]", true),
            ("tasks.example.com:8443", true),
            ("example.com", false),
            ("localhost.example.com", false),
            ("127.0.0.1.example.com:80", false),
            ("", false),
        ] {
            assert_eq!(check_host(&parts("GET", &[("host", host)]), &hosts).is_ok(), known, "{host}");
        }
        assert!(check_host(&parts("GET", &[]), &hosts).is_err());
    }

    #[test]
    fn a_change_comes_from_our_page_or_from_a_program() {
        let own = ("host", "h:1");
        for (headers, allowed) in [
            (&[own][..], true),
            (&[own, ("sec-fetch-site", "same-origin")], true),
            (&[own, ("sec-fetch-site", "same-site")], false),
            (&[own, ("sec-fetch-site", "cross-site")], false),
            (&[own, ("sec-fetch-site", "none")], false),
            (&[own, ("origin", "http://h:1")], true),
            (&[own, ("origin", "http://h:2")], false),
            (&[own, ("origin", "null")], false),
            (&[own, ("sec-fetch-site", "cross-site"), ("origin", "http://h:1")], false),
        ] {
            assert_eq!(check_origin(&parts("POST", headers), &[]).is_ok(), allowed, "{headers:?}");
            assert_eq!(check_origin(&parts("DELETE", headers), &[]).is_ok(), allowed, "{headers:?}");
            assert!(check_origin(&parts("GET", headers), &[]).is_ok());
        }
    }
}
