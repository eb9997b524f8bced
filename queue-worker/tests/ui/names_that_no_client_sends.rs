use queue_worker::Task;

#[derive(Task)]
#[task(type = "c\n")]
struct Type;

#[derive(Task)]
#[task(type = "t", queue = "}x")]
struct Queue;

#[derive(Task)]
#[task(type = "t", queue = "mail}p9")]
struct PartOfAQueue;

#[derive(Task)]
#[task(type = "t", group = "g\t")]
struct Group;

#[derive(Task)]
#[task(type = "t", max_retry = 4294967295)]
struct Retries;

#[derive(Task)]
#[task(type = "t", timeout = "99999999h")]
struct Timeout;

#[derive(Task)]
#[task(type = "t", on_exhausted = "a", on_exhausted_queue = "a}:b")]
struct FollowUp;

fn main() {}
