//! The duties that there are.

use std::sync::Arc;

use queue_core::Clock;

use crate::broker::Broker;
use crate::cancel::CancelDuty;
use crate::flow::{Flows, TendCast, TendQueue, TendTree};
use crate::leader::Duty;
use crate::targets::TendTargets;

/// The duties that every server knows.
pub fn standard(broker: &Broker, clock: Arc<dyn Clock>) -> Vec<Arc<dyn Duty>> {
    let flows = Flows::new(broker.clone(), clock.clone());
    vec![
        Arc::new(CancelDuty { broker: broker.clone(), clock: clock.clone() }),
        Arc::new(TendTargets::new(broker.clone(), clock)),
        Arc::new(TendTree::new(flows.clone())),
        Arc::new(TendCast::new(flows.clone())),
        Arc::new(TendQueue::new(flows)),
    ]
}
