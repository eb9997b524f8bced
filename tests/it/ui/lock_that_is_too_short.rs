use queue_worker::Task;

#[derive(Task)]
#[task(kind = "mail", unique = "500ms")]
struct Mail;

fn main() {}
