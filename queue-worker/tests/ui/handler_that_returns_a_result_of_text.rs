use queue_worker::{Failure, Task, debug_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "mail")]
struct Mail;

#[debug_handler]
async fn send(_: Mail) -> Result<String, Failure> {
    Ok(String::new())
}

fn main() {}
