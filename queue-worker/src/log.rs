//! `tracing`'s macros, but for lines that are not lost while the program has no subscriber.

macro_rules! say_error {
    ($($line:tt)*) => { ::queue_redis::log::emit(|| ::tracing::error!($($line)*)) };
}

macro_rules! say_warn {
    ($($line:tt)*) => { ::queue_redis::log::emit(|| ::tracing::warn!($($line)*)) };
}

macro_rules! say_info {
    ($($line:tt)*) => { ::queue_redis::log::emit(|| ::tracing::info!($($line)*)) };
}

pub(crate) use {say_error as error, say_info as info, say_warn as warn};
