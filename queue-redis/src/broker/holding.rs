//! Whether there is anything to look after, asked by few commands for many queues.

use queue_core::keys::QueueKeys;
use redis::RedisResult;

use super::Broker;
use crate::error::Error;

/// What a queue may have that somebody has to look after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// Pending tasks.
    Pending,
    /// Leases of active tasks.
    Leases,
    /// Completed tasks.
    Completed,
    /// Archived tasks.
    Archived,
    /// Groups.
    Groups,
    /// Groups that are being aggregated, or have been and are not deleted yet.
    Aggregations,
    /// Limits by which tasks are taken.
    Limits,
}

impl Holding {
    /// Those of which a [`Listener`](crate::Listener) tells as such.
    pub const WATCHED: [Self; 6] =
        [Self::Leases, Self::Completed, Self::Archived, Self::Groups, Self::Aggregations, Self::Limits];

    /// What a key of a queue belongs to, by what follows the queue's name.
    pub(crate) fn of(part: &str) -> Option<Self> {
        match part {
            "lease" => Some(Self::Leases),
            "completed" => Some(Self::Completed),
            "archived" => Some(Self::Archived),
            "x:rules" => Some(Self::Limits),
            "aggregation_sets" | "x:aggregated" => Some(Self::Aggregations),
            _ => None,
        }
    }

    /// What the question is called where calls are watched.
    fn question(self) -> &'static str {
        match self {
            Self::Pending => "looking for pending tasks",
            Self::Leases => "looking for leases",
            Self::Completed => "looking for completed tasks",
            Self::Archived => "looking for archived tasks",
            Self::Groups => "looking for groups",
            Self::Aggregations => "looking for aggregations",
            Self::Limits => "looking for limits",
        }
    }

    /// The keys of these queues, and for each the number of its queue.
    pub(crate) fn keys_of(self, queues: &[&str]) -> (Vec<String>, Vec<usize>) {
        let keys = |(number, queue): (usize, &&str)| {
            self.keys(&QueueKeys::new(queue)).into_iter().map(move |key| (key, number))
        };
        queues.iter().enumerate().flat_map(keys).unzip()
    }

    fn keys(self, keys: &QueueKeys) -> Vec<String> {
        match self {
            Self::Pending => vec![keys.pending()],
            Self::Leases => vec![keys.lease()],
            Self::Completed => vec![keys.completed()],
            Self::Archived => vec![keys.archived()],
            Self::Groups => vec![keys.groups()],
            Self::Aggregations => vec![keys.aggregation_sets(), keys.aggregated()],
            Self::Limits => vec![keys.rules()],
        }
    }
}

/// How many keys one command asks about at the most: that takes Redis about 0.2 ms.
const MOST_KEYS: usize = 1_000;

/// In how many parts a group of keys is divided of which one exists.
const PARTS: usize = 32;

/// Searches those keys of many that exist: one command asks for how many of a group there are, and where there are some,
/// not all, it goes on with smaller groups.
pub(crate) struct Search {
    keys: Vec<String>,
    exist: Vec<bool>,
    /// The groups that are to be asked about next: begin and length.
    groups: Vec<(usize, usize)>,
}

impl Search {
    /// `apart`: one command may name one key only, because others may be elsewhere.
    pub(crate) fn new(keys: Vec<String>, apart: bool) -> Self {
        let mut search = Self { exist: vec![false; keys.len()], keys, groups: Vec::new() };
        search.divide(0, search.keys.len(), if apart { 1 } else { MOST_KEYS });
        search
    }

    fn divide(&mut self, begin: usize, length: usize, most: usize) {
        let end = begin + length;
        self.groups.extend((begin..end).step_by(most).map(|begin| (begin, most.min(end - begin))));
    }

    /// The next question; `None` when all is known.
    pub(crate) fn look(&self) -> Option<redis::Pipeline> {
        let mut look = redis::pipe();
        for (begin, length) in &self.groups {
            look.cmd("EXISTS").arg(&self.keys[*begin..begin + length]);
        }
        // A key that is refused must not hide the others.
        look.ignore_errors();
        Some(look).filter(|_| !self.groups.is_empty())
    }

    /// Goes by the answer. Fails when Redis refuses to tell of one key.
    pub(crate) fn narrow(&mut self, answer: Vec<RedisResult<usize>>) -> RedisResult<()> {
        for ((begin, length), existing) in std::mem::take(&mut self.groups).into_iter().zip(answer) {
            match existing {
                Ok(0) => {}
                Ok(existing) if existing >= length => self.exist[begin..begin + length].fill(true),
                Ok(existing) => self.divide(begin, length, (length / (PARTS * existing)).max(1)),
                Err(_) if length > 1 => self.divide(begin, length, 1),
                // Where nobody answers there is nothing to be done either.
                Err(error) if error.code() == Some("CLUSTERDOWN") => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(crate) fn found(self) -> Vec<bool> {
        self.exist
    }
}

impl Broker {
    /// Which of these queues have this. In a cluster one command for each queue asks; elsewhere one for each thousand, and
    /// some more for those that have it. A queue of which Redis refuses to tell counts as one that has it.
    ///
    /// # Errors
    /// When Redis cannot be asked.
    pub async fn which_hold(&self, queues: &[&str], holding: Holding) -> Result<Vec<bool>, Error> {
        let (keys, owners) = holding.keys_of(queues);
        let mut search = Search::new(keys, self.redis.cluster().is_some());
        while let Some(look) = search.look() {
            let answer = self.redis.pipeline(holding.question(), &look).await?;
            if search.narrow(answer).is_err() {
                return Ok(vec![true; queues.len()]);
            }
        }
        Ok(any_of(queues.len(), owners, search.found()))
    }
}

/// Which of so many queues have one of the keys that were found.
pub(crate) fn any_of(queues: usize, owners: Vec<usize>, found: Vec<bool>) -> Vec<bool> {
    let mut hold = vec![false; queues];
    found.into_iter().zip(owners).filter(|(found, _)| *found).for_each(|(_, queue)| hold[queue] = true);
    hold
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many commands and round trips it takes to find so many of 5,000 keys.
    fn search(existing: &[usize]) -> (usize, usize) {
        let keys: Vec<String> = (0..5_000).map(|key| key.to_string()).collect();
        let (mut search, mut commands, mut round_trips) = (Search::new(keys, false), 0, 0);
        while search.look().is_some() {
            let count = |(begin, length): &(usize, usize)| {
                existing.iter().filter(|key| (*begin..begin + length).contains(*key)).count()
            };
            let answer: Vec<_> = search.groups.iter().map(|group| Ok(count(group))).collect();
            commands += answer.len();
            round_trips += 1;
            search.narrow(answer).unwrap();
        }
        let found: Vec<usize> =
            search.found().iter().enumerate().filter(|(_, found)| **found).map(|(key, _)| key).collect();
        assert_eq!(found, existing);
        (commands, round_trips)
    }

    #[test]
    fn a_few_of_many_keys_are_found_by_a_few_commands() {
        assert_eq!(search(&[]), (5, 1));
        let (commands, round_trips) = search(&[4_321]);
        assert!(commands <= 70 && round_trips <= 3, "{commands} in {round_trips}");
        assert_eq!(search(&(0..5_000).collect::<Vec<_>>()), (5, 1), "all of them");
        let (commands, _) = search(&(0..5_000).step_by(2).collect::<Vec<_>>());
        assert!(commands <= 5_005, "{commands}");
    }
}
