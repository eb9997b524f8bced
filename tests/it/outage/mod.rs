//! A running server and a client through every kind of outage: nothing is lost, nothing is doubled, little is said,
//! little is asked, and all goes on by itself afterwards.

mod away;
mod blocked;
mod cluster_down;
mod emptied;
mod refusing;
mod silence;
mod strangers;
mod trial;
