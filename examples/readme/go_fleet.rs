//! The program of the README's section about Go fleets, on the Redis in `REDIS_URL`.

include!(concat!(env!("OUT_DIR"), "/go_fleet.rs"));
