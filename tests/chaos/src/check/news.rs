//! Judges what a listener was told: it is told after it was written, so it has happened.

use crate::findings::{Findings, Invariant};
use crate::history::Story;
use crate::listen::Heard;

pub(super) fn judge(heard: &Heard, story: &Story, findings: &mut Findings) {
    let Some(at) = heard.succeeded.get(&story.name.key()) else { return };
    if !story.succeeded_before(*at) {
        let text = format!("{} was told to have succeeded, at {at}: {story:?}", story.name);
        findings.add(Invariant::FalseNews, text);
    }
}
