//! What a server does, through its public builder.

mod budgets;
mod cancel;
mod exhausted;
mod fallback;
mod groups;
mod groups_failing;
mod handlers;
mod hostile;
mod idle;
mod interruption;
mod limits;
mod notes;
mod observed;
mod options;
mod outcomes;
mod priorities;
mod queues;
mod reconciler;
mod recovery;
mod refused;
mod renewal;
mod shutdown;
mod starts;
mod steering;
mod targets;
mod unhandled;
