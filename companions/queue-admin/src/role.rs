//! Who may do what.

use serde::Serialize;

queue_core::words! {
    /// What somebody has to be allowed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Permission with ALL {
        /// Look at everything but the audit.
        View: "view",
        /// Run tasks.
        Run: "run",
        /// Archive tasks.
        Archive: "archive",
        /// Cancel tasks.
        Cancel: "cancel",
        /// Pause and resume queues.
        Pause: "pause",
        /// Pause, resume and run periodic entries.
        Cron: "cron",
        /// Give servers orders that can be taken back.
        Steer: "steer",
        /// Delete tasks.
        Delete: "delete",
        /// Put tasks into queues.
        Enqueue: "enqueue",
        /// Change payloads.
        Update: "update",
        /// Remove queues and periodic entries.
        Remove: "remove",
        /// Stop servers.
        Stop: "stop",
        /// Read the audit.
        Audit: "audit",
    }
}

queue_core::words! {
    /// A set of permissions by name.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Role with ALL {
        /// May look.
        Viewer: "viewer",
        /// May also do what can be undone: run, archive and cancel tasks, pause queues and periodic entries, make servers
        /// quiet or give them other numbers.
        Operator: "operator",
        /// May do everything.
        Admin: "admin",
    }
}

impl Role {
    /// Whether it includes this permission.
    pub fn allows(self, permission: Permission) -> bool {
        use Permission::{Archive, Cancel, Cron, Pause, Run, Steer, View};
        match self {
            Self::Viewer => permission == View,
            Self::Operator => matches!(permission, View | Run | Archive | Cancel | Pause | Cron | Steer),
            Self::Admin => true,
        }
    }
}
