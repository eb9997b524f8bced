//! The program of the README's quick start, on the Redis in `REDIS_URL`.

include!(concat!(env!("OUT_DIR"), "/quick_start.rs"));
