//! The program of the README's section about periodic tasks, on the Redis in `REDIS_URL`.

include!(concat!(env!("OUT_DIR"), "/periodic_tasks.rs"));
