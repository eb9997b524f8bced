use queue_worker::Task;

#[derive(Task)]
#[task(type = "mail", retries = 3)]
struct Mail;

fn main() {}
