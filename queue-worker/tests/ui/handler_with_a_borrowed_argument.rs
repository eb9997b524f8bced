use queue_worker::{Job, Task, debug_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "mail")]
struct Mail;

#[debug_handler]
async fn send(_: Mail, _: &Job) {}

fn main() {}
