use queue_worker::Task;

#[derive(Task)]
#[task(type = "mail", unique = "500ms")]
struct Mail;

fn main() {}
