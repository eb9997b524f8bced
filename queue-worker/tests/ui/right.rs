use queue_worker::{Router, Task, debug_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "mail")]
struct Mail;

#[debug_handler]
async fn send(_: Mail) {}

fn main() {
    let _ = Router::new(()).task(send);
}
