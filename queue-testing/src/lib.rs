//! A testing kit.

mod store;

pub use store::Store;
