//! The dashboard without Redis and without a terminal: keys and answers go in, pictures come out.

mod fuzz;
mod given;
mod keys;
mod pictures;
