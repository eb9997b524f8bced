//! Texts that are meant to do harm, wherever somebody can put one.

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use queue_core::RawTask;

use crate::support::Place;

pub(crate) const TEXTS: [&str; 12] = [
    "<script>document.title='owned'</script>",
    "\"><img src=x onerror=alert(1)>",
    "javascript:alert(1)",
    "{{7*7}}${7*7}",
    "a/b/../..",
    "..",
    "~tilde",
    "per%cent",
    "\u{202e}turned",
    "zero\u{200b}width",
    "__proto__",
    "9223372036854775808",
];

fn name(text: &str) -> String {
    format!("~{}", URL_SAFE_NO_PAD.encode(text))
}

#[tokio::test]
async fn any_text_is_a_name_and_comes_back_as_it_was() {
    let place = Place::start().await;
    let site = place.open();
    for text in TEXTS {
        let task = RawTask::new(text).queue(text).task_id(text).payload(format!("{text}\0\u{7}")).header("h", text);
        place.put([task]).await;
        for path in [format!("/queues/{}/tasks/{}", name(text), name(text)), format!("/tasks/{}", name(text))] {
            let told = site.get(&path).await;
            assert_eq!(told.status, StatusCode::OK, "{text:?}: {told:?}");
            let found = told.json();
            let found = found["items"].get(0).unwrap_or(&found).clone();
            assert_eq!(found["payload"], format!("{text}\0\u{7}"));
            for field in ["queue", "id", "type"] {
                assert_eq!(found[field], *text, "{field}");
            }
            assert_eq!(found["headers"]["h"], *text);
        }
        let raw = site.get(&format!("/queues/{}/tasks/{}/payload", name(text), name(text))).await;
        assert_eq!(raw.text, format!("{text}\0\u{7}"));
        assert_eq!(raw.headers["content-type"], "application/octet-stream");
        assert!(raw.headers["content-disposition"].to_str().unwrap().starts_with("attachment"));
        assert!(raw.headers["content-security-policy"].to_str().unwrap().starts_with("sandbox"));
        let told = site.send("POST", &format!("/queues/{}/tasks/{}/archive", name(text), name(text)), "").await;
        assert_eq!(told.status, StatusCode::OK, "{text:?}: {told:?}");
        let row = site.get(&format!("/queues/{}", name(text))).await.json();
        assert_eq!((&row["queue"], &row["archived"]), (&text.into(), &1.into()));
    }
}

#[tokio::test]
async fn deep_and_long_payloads_are_cut_and_not_parsed() {
    let place = Place::start().await;
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    let long = "é".repeat(300_000);
    let put = |id: &str, payload: &str| RawTask::new("t").queue("q").task_id(id).payload(payload.to_owned());
    place.put([put("deep", &deep), put("long", &long).header("note", &*long)]).await;
    let site = place.open();
    let list = site.get("/tasks?queue=q").await;
    assert!(list.text.len() < 8_000, "{}", list.text.len());
    let alone = site.get("/queues/q/tasks/long").await.json();
    assert_eq!((alone["payload_bytes"].as_u64(), alone["payload"].as_str().unwrap().len()), (Some(600_000), 65_536));
    assert_eq!(alone["headers"]["note"], long);
    assert_eq!(site.get("/queues/q/tasks/long/payload").await.text, long);
    assert_eq!(site.get("/queues/q/tasks/deep/payload").await.text, deep);
}
