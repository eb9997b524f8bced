//! What requests and answers say in their headers.

use axum::http::StatusCode;

use crate::support::{Place, QUEUE};

#[tokio::test]
async fn a_task_that_is_asked_for_again_has_the_same_tag_in_all_states_however_it_is_written() {
    let place = Place::start().await;
    place.furnish().await;
    let site = place.open();
    for state in ["pending", "scheduled", "archived"] {
        let path = format!("/api/v1/queues/{QUEUE}/tasks/{state}");
        let tag = site.ask("GET", &path, &[], "").await.headers["etag"].to_str().unwrap().to_owned();
        // The answer tells when it is due, which of a pending one is now.
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        for known in [&tag, &format!("W/{tag}"), &format!("\"other\", {tag}"), "*"] {
            let again = site.ask("GET", &path, &[("if-none-match", known)], "").await;
            assert_eq!(again.status, StatusCode::NOT_MODIFIED, "{state} {known}");
        }
        let other = site.ask("GET", &path, &[("if-none-match", "\"other\"")], "").await;
        assert_eq!(other.status, StatusCode::OK);
    }
    let path = format!("/api/v1/queues/{QUEUE}/tasks/scheduled");
    let tag = site.ask("GET", &path, &[], "").await.headers["etag"].to_str().unwrap().to_owned();
    let list = format!("\"other\", W/{tag}");
    for (seen, expected) in [("\"other\"", StatusCode::PRECONDITION_FAILED), (&list, StatusCode::OK)] {
        assert_eq!(site.ask("DELETE", &path, &[("if-match", seen)], "").await.status, expected);
    }
}

#[tokio::test]
async fn another_method_is_told_the_right_one_and_types_of_media_have_no_case() {
    let place = Place::start().await;
    let site = place.open();
    let wrong = site.ask("PUT", "/api/v1/queues", &[], "").await;
    assert_eq!((wrong.status, wrong.headers["allow"].to_str().unwrap()), (StatusCode::METHOD_NOT_ALLOWED, "GET"));
    let path = format!("/api/v1/queues/{QUEUE}/tasks");
    let body = r#"{"type":"t","task_id":".."}"#;
    let told = site.ask("POST", &path, &[("content-type", "Application/JSON")], body).await;
    assert_eq!((told.status, told.headers.get("location")), (StatusCode::CREATED, None), "{told:?}");
}
