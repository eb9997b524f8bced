use queue_worker::Task;

#[derive(Task)]
#[task(type = "mail", timeout = "30")]
struct Mail;

fn main() {}
