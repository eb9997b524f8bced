use queue_worker::Task;

#[derive(Task)]
#[task(queue = "mail")]
struct Mail;

fn main() {}
