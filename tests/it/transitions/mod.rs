//! One module for each script: every answer it can give, with the whole key space before and after.

mod add_to_group;
mod archive;
mod complete;
mod counters;
mod delete_expired_completed;
mod dequeue;
mod dequeue_matching;
mod done;
mod enqueue;
mod enqueue_tick;
mod entry;
mod extend_lease;
mod fencing;
mod forward;
mod list_expired;
mod requeue;
mod requeue_run;
mod retry;
mod schedule;
mod server_state;
mod trim;
mod write_result;
