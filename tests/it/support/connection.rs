//! Connections of tests, which have time: a picture of thousands of keys, or a machine that is busy with other tests, takes
//! longer than the half second that is the default.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, IntoConnectionInfo};

use super::PATIENCE;

pub(crate) fn patient() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE))
}

/// One that nothing of ours has a part in.
pub(crate) async fn plain_connection(to: impl IntoConnectionInfo) -> MultiplexedConnection {
    let client = redis::Client::open(to).unwrap();
    client.get_multiplexed_async_connection_with_config(&patient()).await.unwrap()
}
