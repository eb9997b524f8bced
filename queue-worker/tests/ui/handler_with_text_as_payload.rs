use queue_worker::debug_handler;

#[debug_handler]
async fn send(_: String) {}

fn main() {}
