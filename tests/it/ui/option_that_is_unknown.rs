use queue_worker::Task;

#[derive(Task)]
#[task(kind = "mail", retries = 3)]
struct Mail;

fn main() {}
