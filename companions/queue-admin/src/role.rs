//! Who may do what.

use serde::Serialize;

/// What somebody has to be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    /// Look at everything but the audit.
    View,
    /// Run tasks.
    Run,
    /// Archive tasks.
    Archive,
    /// Cancel tasks.
    Cancel,
    /// Pause and resume queues.
    Pause,
    /// Pause, resume and run periodic entries.
    Cron,
    /// Give servers orders that can be taken back.
    Steer,
    /// Delete tasks.
    Delete,
    /// Put tasks into queues.
    Enqueue,
    /// Change payloads.
    Update,
    /// Remove queues and periodic entries.
    Remove,
    /// Stop servers.
    Stop,
    /// Read the audit.
    Audit,
}

impl Permission {
    /// All of them.
    pub const ALL: [Self; 13] = {
        use Permission::{
            Archive, Audit, Cancel, Cron, Delete, Enqueue, Pause, Remove, Run, Steer, Stop, Update, View,
        };
        [View, Run, Archive, Cancel, Pause, Cron, Steer, Delete, Enqueue, Update, Remove, Stop, Audit]
    };

    /// Its name: `view`, `run` and so on.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Run => "run",
            Self::Archive => "archive",
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Cron => "cron",
            Self::Steer => "steer",
            Self::Delete => "delete",
            Self::Enqueue => "enqueue",
            Self::Update => "update",
            Self::Remove => "remove",
            Self::Stop => "stop",
            Self::Audit => "audit",
        }
    }
}

/// A set of permissions by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// May look.
    Viewer,
    /// May also do what can be undone: run, archive and cancel tasks, pause queues and periodic entries, make servers
    /// quiet or give them other numbers.
    Operator,
    /// May do everything.
    Admin,
}

impl Role {
    /// All of them, those that may less first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// `viewer`, `operator` or `admin`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

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
