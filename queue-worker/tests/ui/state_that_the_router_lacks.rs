use queue_worker::{Router, State, Task};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "mail")]
struct Mail;

#[derive(Clone)]
struct Database;

async fn send(_: Mail, State(_): State<Database>) {}

fn main() {
    let _ = Router::new(()).task(send);
}
