use queue_worker::{Task, debug_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "mail")]
struct Mail;

#[debug_handler]
async fn send(_: Mail) {
    let shared = std::rc::Rc::new(7);
    std::future::ready(()).await;
    drop(shared);
}

fn main() {}
