//! On which connections of a node something is sent.

use std::collections::HashMap;
use std::sync::Arc;

use redis::{Pipeline, Value};

use super::Node;
use crate::address::NodeAddress;
use crate::error::Error;
use crate::link::server::{Lent, Request};
use crate::link::source::Use;

/// Connections of one's own to nodes, all for one use.
pub(crate) struct Lents {
    pub(super) usage: Use,
    pub(super) by_node: HashMap<NodeAddress, Lent>,
}

impl Lents {
    pub(crate) fn new(usage: Use) -> Self {
        Self { usage, by_node: HashMap::new() }
    }
}

/// On which connections something is sent.
pub(crate) enum Way<'a> {
    /// On the shared one of the node.
    Shared,
    /// On one that nobody else uses.
    Own(&'a mut Lents),
}

impl Way<'_> {
    async fn lent<'b>(lents: &'b mut Lents, node: &Node) -> Result<&'b mut Lent, Error> {
        let Lents { usage, by_node } = lents;
        if by_node.get(&node.address).is_none_or(Lent::is_broken) {
            // The old one first: it may be what the pool waits for.
            by_node.remove(&node.address);
            by_node.insert(node.address.clone(), Lent::of(&node.server, *usage).await?);
        }
        let gone = || Error::Disconnected {
            target: node.server.target().to_owned(),
            source: Arc::new(std::io::Error::other("the connection was given back")),
        };
        by_node.get_mut(&node.address).ok_or_else(gone)
    }

    pub(super) async fn send(
        &mut self,
        node: &Node,
        operation: &'static str,
        request: Request<'_>,
    ) -> Result<Value, Error> {
        match self {
            Self::Shared => node.server.send(operation, request).await,
            Self::Own(lents) => Self::lent(lents, node).await?.send(operation, request).await,
        }
    }

    pub(super) async fn replies(
        &mut self,
        node: &Node,
        operation: &'static str,
        pipeline: &Pipeline,
    ) -> Result<Vec<Value>, Error> {
        match self {
            Self::Shared => node.server.replies(operation, pipeline).await,
            Self::Own(lents) => Self::lent(lents, node).await?.replies(operation, pipeline).await,
        }
    }
}
