//! The program of the guide's page about periodic tasks, on the Redis in `REDIS_URL`.

include!(concat!(env!("OUT_DIR"), "/periodic_tasks.rs"));
