//! Who a server is.

use uuid::Uuid;

/// Who this server is.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) host: String,
    pid: u32,
    id: String,
    pub(super) started_ns: i64,
}

impl Identity {
    pub(super) fn new(started_ns: i64) -> Self {
        let host = hostname::get().ok().and_then(|name| name.into_string().ok());
        Self {
            host: host.filter(|name| !name.is_empty()).unwrap_or_else(|| "unknown-host".to_owned()),
            pid: std::process::id(),
            id: Uuid::new_v4().to_string(),
            started_ns,
        }
    }

    /// What a task says about who has it.
    pub(super) fn name(&self) -> String {
        format!("{}:{}:{}", self.host, self.pid, self.id)
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn pid(&self) -> i32 {
        i32::try_from(self.pid).unwrap_or(0)
    }
}
