use queue_worker::{State, Task, debug_handler};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Task)]
#[task(type = "mail")]
struct Mail;

#[derive(Clone)]
struct Database;

#[debug_handler(state = ())]
async fn send(_: Mail, State(_): State<Database>) {}

fn main() {}
