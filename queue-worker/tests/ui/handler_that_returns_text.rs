use queue_worker::{Task, debug_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "mail")]
struct Mail;

#[debug_handler]
async fn send(_: Mail) -> String {
    String::new()
}

fn main() {}
