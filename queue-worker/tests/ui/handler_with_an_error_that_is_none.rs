use queue_worker::{Task, debug_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "mail")]
struct Mail;

struct Refused;

#[debug_handler]
async fn send(_: Mail) -> Result<(), Refused> {
    Err(Refused)
}

fn main() {}
