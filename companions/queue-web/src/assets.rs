//! The files of the pages. They are committed as they are served.

use std::collections::BTreeMap;
use std::io::Write as _;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

/// A file: its address below `assets/`, its type, and what is in it.
type File = (&'static str, &'static str, &'static str);

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, kind($name), include_str!(concat!("../assets/", $name))),)*]
    };
}

const fn kind(name: &str) -> &'static str {
    match name.as_bytes() {
        [.., b'.', b'j', b's'] => "text/javascript; charset=utf-8",
        [.., b'.', b'c', b's', b's'] => "text/css; charset=utf-8",
        _ => "image/svg+xml",
    }
}

pub(crate) const FILES: &[File] = files! {
    "app.css" "icon.svg" "app.js" "api.js" "dom.js" "format.js" "graph.js" "keys.js" "live.js" "operation.js" "pager.js" "settings.js" "ui.js"
    "pages/audit.js" "pages/batch.js" "pages/batches.js" "pages/bin.js" "pages/cron.js" "pages/doctor.js" "pages/enqueue.js" "pages/events.js" "pages/failures.js" "pages/groups.js" "pages/limits.js" "pages/login.js" "pages/operations.js" "pages/overview.js" "pages/queue.js"
    "pages/redis.js" "pages/servers.js" "pages/settings.js" "pages/task.js" "pages/tasks.js"
};

pub(crate) const PAGE: &str = include_str!("../assets/index.html");

/// The addresses of pages. Each is one level deep, so that relative addresses lead to the same place from all of them.
pub(crate) const PAGES: [&str; 19] = [
    "",
    "queue",
    "tasks",
    "task",
    "failures",
    "groups",
    "batches",
    "batch",
    "limits",
    "operations",
    "bin",
    "events",
    "servers",
    "cron",
    "redis",
    "doctor",
    "audit",
    "enqueue",
    "settings",
];

pub(crate) struct Assets {
    /// The document of each page: the version of its files is in their addresses, and it names all that the page loads.
    pages: BTreeMap<&'static str, Bytes>,
    version: String,
    files: BTreeMap<&'static str, Asset>,
}

/// A file as it is answered.
struct Asset {
    kind: &'static str,
    text: Bytes,
    gzip: Bytes,
}

fn gzip(text: &str) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let all = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    // A vector takes whatever is written.
    all.unwrap_or_default().into()
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let texts = headers.get_all(header::ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).any(|part| {
        let (name, weight) = part.split_once(';').unwrap_or((part, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_ok_and(|weight| weight > 0.0)
    })
}

/// The scripts that a page loads, those first that all pages load. A browser told of them asks for all at once; by itself it
/// learns of each from the one that imports it, a round trip later.
fn scripts_of(page: &str) -> Vec<&'static str> {
    let page = if page.is_empty() { "overview" } else { page };
    let mut found = vec!["app.js"];
    let mut looked = 0;
    let mut own = FILES.iter().map(|(name, ..)| *name).find(|name| *name == format!("pages/{page}.js"));
    loop {
        while let Some(name) = found.get(looked) {
            looked += 1;
            for other in imports_of(name) {
                if !found.contains(&other) {
                    found.push(other);
                }
            }
        }
        match own.take() {
            Some(own) => found.push(own),
            None => return found,
        }
    }
}

fn imports_of(name: &str) -> impl Iterator<Item = &'static str> {
    let text = FILES.iter().find(|(other, ..)| *other == name).map_or("", |(_, _, text)| text);
    let folder = if name.starts_with("pages/") { "pages/" } else { "" };
    let lines =
        text.lines().take_while(|line| line.starts_with("import ") || line.starts_with("//") || line.is_empty());
    lines.filter_map(move |line| {
        let (_, path) = line.split_once(" from \"")?;
        let (path, _) = path.split_once('"')?;
        let path = path.strip_prefix("../").map_or_else(|| path.replacen("./", folder, 1), str::to_owned);
        FILES.iter().map(|(name, ..)| *name).find(|name| *name == path)
    })
}

impl Assets {
    pub(crate) fn new() -> Self {
        let mut all = PAGE.to_owned();
        all.extend(FILES.iter().flat_map(|(name, _, text)| [*name, *text]));
        let version = format!("{:x}", md5::compute(all))[..12].to_owned();
        let pages = PAGES.map(|page| {
            let links = scripts_of(page).iter().fold(String::new(), |links, name| {
                links + "<link rel=\"modulepreload\" href=\"./assets/VERSION/" + name + "\">\n"
            });
            (page, PAGE.replace("PRELOADS\n", &links).replace("VERSION", &version).into())
        });
        let files = FILES.iter().map(|(name, kind, text)| {
            (*name, Asset { kind, text: Bytes::from_static(text.as_bytes()), gzip: gzip(text) })
        });
        Self { pages: pages.into(), version, files: files.collect() }
    }

    pub(crate) fn answer(&self, path: &str, headers: &HeaderMap) -> Option<Response> {
        let path = path.strip_prefix('/')?;
        if let Some(page) = self.pages.get(path) {
            let tag = format!("\"{}\"", self.version);
            let headers_of_page = [
                (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
                (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
                (header::ETAG, HeaderValue::from_str(&tag).ok()?),
            ];
            let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
            let status = if is_known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
            let body = if is_known { Bytes::new() } else { page.clone() };
            return Some((status, headers_of_page, body).into_response());
        }
        let (version, name) = path.strip_prefix("assets/")?.split_once('/')?;
        let Asset { kind, text, gzip } = self.files.get(name)?;
        // A page that is open while the program is replaced still gets its files, but does not keep them.
        let keep = if version == self.version { "public, max-age=31536000, immutable" } else { "no-store" };
        let about = [(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, keep), (header::VARY, "accept-encoding")];
        Some(if takes_gzip(headers) {
            (about, [(header::CONTENT_ENCODING, "gzip")], gzip.clone()).into_response()
        } else {
            (about, text.clone()).into_response()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What would let text become code, or bring something from another host.
    #[test]
    fn no_file_has_what_the_policy_forbids() {
        let forbidden = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "style=\"",
            "onclick=",
            "javascript:",
            "https://",
            "//cdn",
            "setTimeout(\"",
            ".style.cssText",
        ];
        for (name, _, text) in FILES.iter().chain([&("index.html", "", PAGE)]) {
            for word in forbidden {
                assert!(!text.contains(word), "{name}: {word}");
            }
            // But for a page of ours.
            for (at, _) in text.match_indices("import(") {
                assert!(text[at..].starts_with("import(`./pages/${"), "{name}: a script from elsewhere");
            }
            // The name space of SVG is an address that nobody asks.
            for (at, _) in text.match_indices("http://") {
                assert!(text[at..].starts_with("http://www.w3.org/2000/svg"), "{name}: an address with a host");
            }
            assert!(text.lines().count() <= 350, "{name} has {} lines", text.lines().count());
            assert!(!text.contains("<script>") && !text.contains("<style"), "{name}: inline");
        }
    }

    #[test]
    fn the_page_of_events_offers_every_kind_that_there_is() {
        let (_, _, text) = FILES.iter().find(|(name, ..)| *name == "pages/events.js").unwrap();
        for kind in queue_core::event::Kind::ALL {
            assert!(kind.is_of_the_feed() || text.contains(&format!("\"{kind}\"")), "{kind}");
        }
    }

    #[test]
    fn all_files_are_in_the_table_and_are_small() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
        let mut found = Vec::new();
        for folder in ["", "pages/"] {
            for entry in std::fs::read_dir(root.join(folder)).unwrap().map(Result::unwrap) {
                if entry.path().is_file() {
                    found.push(format!("{folder}{}", entry.file_name().to_string_lossy()));
                }
            }
        }
        found.retain(|name| name != "index.html");
        found.sort();
        let mut known: Vec<&str> = FILES.iter().map(|(name, ..)| *name).collect();
        known.sort_unstable();
        assert_eq!(found, known);
        // The bar of the overview is 60 KB, of all pages 100 KB; the smaller one holds for all.
        let size: usize = FILES.iter().map(|(_, _, text)| gzip(text).len()).sum();
        assert!(size + PAGE.len() < 60 * 1024, "the files have {size} bytes as they are sent");
    }

    #[test]
    fn a_document_names_all_that_its_page_loads_and_nothing_else() {
        let assets = Assets::new();
        let document = String::from_utf8(assets.pages["bin"].to_vec()).unwrap();
        let links = document.lines().filter_map(|line| line.strip_prefix("<link rel=\"modulepreload\" href=\""));
        let prefix = format!("./assets/{}/", assets.version);
        let named: Vec<&str> =
            links.map(|link| link.strip_prefix(&prefix).unwrap().strip_suffix("\">").unwrap()).collect();
        let common = "app.js api.js dom.js format.js keys.js live.js settings.js ui.js pages/login.js";
        let expected = format!("{common} pages/bin.js operation.js pager.js pages/operations.js");
        assert_eq!(named, expected.split(' ').collect::<Vec<_>>());
        for (page, document) in &assets.pages {
            let own = format!("{prefix}pages/{}.js\"", if page.is_empty() { "overview" } else { page });
            assert!(std::str::from_utf8(document).unwrap().contains(&own), "{page:?}");
        }
        // A line that imports stands above all others, where it is looked for.
        for (name, _, text) in FILES {
            let imports = text.lines().filter(|line| line.starts_with("import ")).count();
            assert_eq!(imports_of(name).count(), imports, "{name}");
        }
    }

    #[test]
    fn files_are_sent_as_small_as_the_browser_takes_them() {
        use std::io::Read as _;
        let assets = Assets::new();
        let (name, _, text) = FILES[2];
        let path = format!("/assets/{}/{name}", assets.version);
        for (accepted, is_small) in [
            ("gzip, deflate, br", true),
            ("br;q=1.0, GZIP;q=0.5", true),
            ("deflate", false),
            ("gzip;q=0", false),
            ("gzip;q=x", false),
            ("xgzip", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT_ENCODING, accepted.parse().unwrap())]);
            let answer = assets.answer(&path, &headers).unwrap();
            assert_eq!(answer.headers().contains_key(header::CONTENT_ENCODING), is_small, "{accepted}");
            assert_eq!(answer.headers()[header::VARY], "accept-encoding");
        }
        let mut read = String::new();
        flate2::read::GzDecoder::new(&assets.files[name].gzip[..]).read_to_string(&mut read).unwrap();
        assert!(read == text && assets.files[name].gzip.len() < text.len() / 2);
    }
}
