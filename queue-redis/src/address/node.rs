//! The address of one of several nodes.

use std::sync::Arc;

/// Where a node is. Compared by name: a node may have several, and is then several nodes to us.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct NodeAddress {
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

impl std::fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl NodeAddress {
    /// As it stands in an answer of `from`, who may not know its own name, and then leaves it out.
    pub(crate) fn told(host: &str, port: u16, from: &Self) -> Self {
        let host = if host.is_empty() || host == "?" { from.host.clone() } else { host.into() };
        Self { host, port }
    }
}
