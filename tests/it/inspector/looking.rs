//! Groups, history and memory.

use queue_admin::{Error, Filter, Page};
use queue_core::TaskState;

use super::{at, start};
use crate::support::{NOW, QUEUE, job};

#[tokio::test]
async fn groups_are_listed_by_name_with_their_tasks() {
    let (fixture, inspector) = start().await;
    assert!(inspector.groups(QUEUE).await.unwrap().is_empty());
    for (id, group) in [("a", "zoo"), ("b", "ark:1"), ("c", "zoo")] {
        fixture.put([job(id).group(group)]).await;
    }
    let groups: Vec<(String, u64)> =
        inspector.groups(QUEUE).await.unwrap().into_iter().map(|group| (group.name, group.size)).collect();
    assert_eq!(groups, [("ark:1".to_owned(), 1), ("zoo".to_owned(), 2)]);
    let zoo = inspector.group_tasks(QUEUE, "zoo", Page::default()).await.unwrap();
    let ids: Vec<&str> = zoo.iter().map(|task| &*task.id).collect();
    assert_eq!(ids, ["a", "c"]);
    assert!(zoo.iter().all(|task| task.state == TaskState::Aggregating && task.group.as_deref() == Some("zoo")));
    let second = inspector.group_tasks(QUEUE, "zoo", Page { skip: 1, size: 1 }).await.unwrap();
    assert_eq!(second[0].id, "c");
    assert!(inspector.group_tasks(QUEUE, "none", Page::default()).await.unwrap().is_empty());
    assert!(matches!(inspector.groups("none").await, Err(Error::QueueNotFound(_))));
}

#[tokio::test]
async fn history_goes_back_day_by_day_from_today_and_past_what_redis_keeps() {
    let (fixture, inspector) = start().await;
    // NOW is in the night of 2096-10-02, 07:06:40 UTC.
    fixture.run("MSET asynq:{q}:processed:2096-10-02 5 asynq:{q}:failed:2096-10-02 2").await;
    fixture.run("MSET asynq:{q}:processed:2096-09-30 7 asynq:{q}:failed:2096-10-03 9").await;
    let days: Vec<(String, u64, u64)> = inspector
        .history(QUEUE, 3)
        .await
        .unwrap()
        .into_iter()
        .map(|day| (day.date.to_string(), day.processed, day.failed))
        .collect();
    let expected = [("2096-10-02", 5, 2), ("2096-10-01", 0, 0), ("2096-09-30", 7, 0)];
    assert_eq!(days, expected.map(|(date, processed, failed)| (date.to_owned(), processed, failed)));
    assert_eq!(inspector.history(QUEUE, 250).await.unwrap().len(), 250);
    assert!(inspector.history(QUEUE, 0).await.unwrap().is_empty());
    let tomorrow = at(&fixture, NOW + 24 * 60 * 60).history(QUEUE, 1).await.unwrap();
    assert_eq!((tomorrow[0].processed, tomorrow[0].failed), (0, 9));
    assert!(matches!(inspector.history("none", 1).await, Err(Error::QueueNotFound(_))));
}

#[tokio::test]
async fn a_page_beyond_all_numbers_is_empty_and_one_of_any_size_is_whole() {
    let (fixture, inspector) = start().await;
    fixture.put([job("a"), job("b").process_in(std::time::Duration::from_secs(9))]).await;
    fixture.put([job("c").group("g")]).await;
    for (skip, size, found) in
        [(usize::MAX, 30, 0), (usize::MAX, usize::MAX, 0), (1, usize::MAX, 0), (0, usize::MAX, 1)]
    {
        let page = Page { skip, size };
        for state in [TaskState::Pending, TaskState::Scheduled, TaskState::Aggregating] {
            let tasks = inspector.tasks(QUEUE, state, page).await.unwrap();
            assert_eq!(tasks.len(), found, "{state} {page:?}");
            let filter = Filter::new().state(state).task_type("job");
            assert_eq!(inspector.find(QUEUE, &filter, page).await.unwrap().len(), found, "{state} {page:?}");
        }
        assert_eq!(inspector.group_tasks(QUEUE, "g", page).await.unwrap().len(), found, "{page:?}");
        assert!(inspector.enqueue_events("none", page).await.unwrap().is_empty());
    }
}
