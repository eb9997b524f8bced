//! How many other idle servers there are, as far as it shows.
//!
//! Redis tells every idle server about a new task, and one of them gets it. With a hundred servers that would be a
//! hundred takes for each task. So each goes for it at once only with a certain probability, and looks a little later
//! otherwise. Who finds nothing although it went at once halves its probability; who finds something makes it four times
//! as high. Of any number of servers about three then go at once, each as often as the others, without knowing of
//! each other; and when the others are busy or gone, the one that finds work a little later soon goes at once again.

use std::time::Duration;

/// What the pauses last at the most while nobody else is known, doubled as often as the probability is halved; and what
/// they last at the most in any case. A hundred servers that all pause come back one after another, the first within about a millisecond.
const FIRST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(250);

/// How often the probability is halved at the most: in a simulation of up to 500 servers, more made the shares of the
/// servers uneven, since who seldom goes seldom learns.
const MOST_HALVED: u32 = 6;

/// What a server has learned about the others.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// How often the probability is halved.
    halved: u32,
    /// Whether it was told of work, went for it at once, and has found none yet.
    at_once: bool,
}

impl Crowd {
    /// Redis tells of work. Returns how long to leave it to others; `None` to go for it at once. What may be the
    /// echo of this server's own take says nothing about others.
    pub(super) fn told(&mut self, may_be_echo: bool) -> Option<Duration> {
        let one_in = 1 << self.halved;
        let goes = fastrand::u32(0..one_in) == 0;
        self.at_once = goes && !may_be_echo;
        (!goes).then(|| FIRST.saturating_mul(one_in).min(LONGEST).mul_f64(fastrand::f64()))
    }

    /// There was some for us.
    pub(super) fn found(&mut self) {
        self.halved = self.halved.saturating_sub(2);
        self.at_once = false;
    }

    /// There is none, or none left.
    pub(super) fn found_nothing(&mut self) {
        if std::mem::take(&mut self.at_once) {
            self.halved = (self.halved + 1).min(MOST_HALVED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_alone_goes_at_once() {
        let mut crowd = Crowd::default();
        for _ in 0..100 {
            assert_eq!(crowd.told(false), None);
            crowd.found();
        }
    }

    #[test]
    fn the_echo_of_an_own_take_says_nothing_about_others() {
        let mut crowd = Crowd::default();
        for _ in 0..100 {
            assert_eq!(crowd.told(true), None);
            crowd.found_nothing();
        }
    }

    #[test]
    fn a_look_that_nobody_asked_for_says_nothing_about_others() {
        let mut crowd = Crowd::default();
        for _ in 0..100 {
            crowd.found_nothing();
        }
        assert_eq!(crowd.told(false), None);
    }

    /// Lets so many servers hear of tasks, one after another; returns how often each got one, and how many went at once.
    fn compete(crowds: &mut [Crowd], tasks: usize) -> (Vec<usize>, usize) {
        let (mut got, mut went) = (vec![0; crowds.len()], 0);
        for _ in 0..tasks {
            let pauses: Vec<_> = crowds.iter_mut().map(|crowd| crowd.told(false)).collect();
            let at_once: Vec<usize> = (0..crowds.len()).filter(|server| pauses[*server].is_none()).collect();
            went += at_once.len();
            let first_back = (0..crowds.len()).min_by_key(|server| pauses[*server]).unwrap();
            let winner = if at_once.is_empty() { first_back } else { at_once[fastrand::usize(..at_once.len())] };
            got[winner] += 1;
            for (server, crowd) in crowds.iter_mut().enumerate() {
                if server == winner { crowd.found() } else { crowd.found_nothing() }
            }
        }
        (got, went)
    }

    #[test]
    fn of_a_hundred_servers_a_few_go_at_once_and_each_gets_its_share() {
        let mut crowds: Vec<_> = (0..100).map(|_| Crowd::default()).collect();
        compete(&mut crowds, 200);
        let (got, went) = compete(&mut crowds, 10_000);
        assert!((10_000..60_000).contains(&went), "{went} for 10,000 tasks");
        let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
        assert!(*least > 20 && *most < 300, "100 would be even: {least} to {most}, {went} went");
    }

    #[test]
    fn a_server_that_is_left_alone_goes_at_once_again_after_a_few_tasks() {
        let mut crowds: Vec<_> = (0..100).map(|_| Crowd::default()).collect();
        compete(&mut crowds, 200);
        compete(&mut crowds[..1], 10);
        assert_eq!(crowds[0].told(false), None);
    }
}
