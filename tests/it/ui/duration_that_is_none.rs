use queue_worker::Task;

#[derive(Task)]
#[task(kind = "mail", timeout = "30")]
struct Mail;

fn main() {}
