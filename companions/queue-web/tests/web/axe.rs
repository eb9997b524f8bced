//! The pages as axe-core sees them: no violation of WCAG 2.2, levels A and AA, on a desktop and on a phone, light and dark.

use std::path::Path;

use queue_web::Web;
use serde_json::{Value, json};

use crate::browser::{PAGES, Window, is_there};
use crate::support::{Place, QUEUE, Served, task};

/// Where `scripts/setup` puts it.
const AXE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/axe/axe_playwright_python/axe.min.js");

/// axe-core; without it, the test is skipped loudly, and fails where `REQUIRE_TOOLS` is set.
fn axe() -> Option<String> {
    let text = std::fs::read_to_string(Path::new(AXE)).ok();
    if text.is_none() {
        assert!(std::env::var_os("REQUIRE_TOOLS").is_none(), "axe-core is missing; scripts/setup installs it");
        eprintln!("!!! axe-core is missing: the pages are NOT EXAMINED with it; scripts/setup installs it");
    }
    text
}

/// What it finds, as lines of rule and element.
const EXAMINE: &str = "return (async () => {
    document.querySelectorAll('details').forEach((details) => { details.open = true; });
    const found = await axe.run(document, { resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] });
    return [found.passes.length, found.violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => `${id}: ${target} ${failureSummary}`))];
})()";

/// Adds to `found` what is wrong with what the window shows, in all its sizes and colours.
async fn examine(window: &Window, what: &str, found: &mut Vec<String>) {
    for (width, height) in [(1_300, 900), (375, 700)] {
        let screen = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        window.devtools("Emulation.setDeviceMetricsOverride", screen).await;
        for scheme in ["light", "dark"] {
            let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
            window.devtools("Emulation.setEmulatedMedia", media).await;
            let told = window.script(EXAMINE).await;
            // It has looked at something.
            assert!(told[0].as_u64().unwrap() > 5, "{what}: {told}");
            let faults = told[1].as_array().unwrap().iter().filter_map(Value::as_str);
            found.extend(faults.map(|fault| format!("{what}, {width} px, {scheme}: {fault}")));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_page_and_no_question_violates_wcag() {
    let (true, Some(axe)) = (is_there(), axe()) else { return };
    let place = Place::start().await;
    place.release().await;
    place.furnish().await;
    place.admin().pause("low", true).await.unwrap();
    place.limit().await;
    place.put([task("spare")]).await;
    let site = place.open();
    let wish = json!({ "action": "delete", "queues": [QUEUE], "ids": ["spare"] }).to_string();
    let begun = site.send("POST", "/operations", &wish).await.json();
    let bin = format!("bin?id={}", begun["id"].as_str().unwrap());
    let more = [("task?queue=mail&id=archived", "Download"), ("operations", "1 changed, 0 skipped"), (&*bin, "1 of 1")];
    let served = Served::start(&site.0).await;
    let window = Window::open((1_300, 900), false).await;
    // Not by the page, whose policy would refuse it.
    window.devtools("Page.addScriptToEvaluateOnNewDocument", json!({ "source": axe })).await;
    let mut found = Vec::new();
    for (page, text) in PAGES.into_iter().chain(more) {
        window.go(&format!("{}{page}", served.address)).await;
        window.has(text).await;
        examine(&window, page, &mut found).await;
    }
    window.keys("?").await;
    window.has("theme").await;
    examine(&window, "the help", &mut found).await;
    window.go(&format!("{}queue?queue=mail", served.address)).await;
    window.click("[data-action='queue.remove']").await;
    window.has("Delete this queue?").await;
    examine(&window, "a question", &mut found).await;
    served.end().await;
    let web = Web::builder(place.redis.clone()).users(crate::login::users()).build();
    let served = Served::start(&web).await;
    window.go(&served.address).await;
    window.has("Log in").await;
    window.click("form button").await;
    examine(&window, "the login", &mut found).await;
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
    window.close().await;
    served.end().await;
}
