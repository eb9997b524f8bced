//! What should not be in Redis, and what nobody should ask for: a clear error at the earliest place, nothing lost,
//! and the others' work goes on.

mod messages;
mod names;
mod numbers;
mod sizes;
mod wrong_types;
