//! The commands on keys, one table: those that scripts, crates and their tests use, with the options that they use.
//! Whatever else is asked for is refused by name, as Redis refuses what it does not know.

mod hashes;
mod keys;
mod lists;
mod scan;
mod server;
mod sets;
mod sorted_sets;
mod strings;
mod zrange;

use super::data::Data;
use super::reply::{Answer, Refusal};

/// What follows the name of a command.
pub(crate) type Args<'a> = &'a [Vec<u8>];

/// Which arguments are keys that the command only reads; clients that track hear of their changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    Nothing,
    First,
    All,
}

/// A command: its name, how many arguments it takes, what it reads, and what it does.
pub(crate) struct Command {
    name: &'static str,
    least: usize,
    most: usize,
    reads: Reads,
    run: fn(&mut Data, Args<'_>) -> Answer,
}

impl Command {
    /// The keys that it only looks at.
    pub(crate) fn looks_at<'a>(&self, args: Args<'a>) -> Args<'a> {
        match self.reads {
            Reads::Nothing => &[],
            Reads::First => args.get(..1).unwrap_or_default(),
            Reads::All => args,
        }
    }

    /// The keys that it names.
    pub(crate) fn keys<'a>(&self, args: Args<'a>) -> Args<'a> {
        let count = match self.name {
            "del" | "exists" | "mget" | "unlink" => args.len(),
            "lmove" | "rename" | "rpoplpush" => 2,
            "cluster" | "config" | "dbsize" | "flushall" | "info" | "keys" | "memory" | "publish" | "scan" | "time" => {
                0
            }
            _ => 1,
        };
        &args[..count.min(args.len())]
    }

    pub(crate) fn run(&self, data: &mut Data, args: Args<'_>) -> Answer {
        if args.len() < self.least || args.len() > self.most {
            return Err(Refusal(format!("ERR wrong number of arguments for '{}' command", self.name)));
        }
        (self.run)(data, args)
    }
}

/// The command of this name, in whatever case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Command> {
    let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
    TABLE.iter().find(|command| command.name == name)
}

/// Whether an argument is this word, in whatever case.
fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

macro_rules! table {
    ($($name:literal $least:literal $(.. $($most:literal)?)?, $reads:ident, $run:path;)*) => {
        static TABLE: &[Command] = &[$(Command {
            name: $name,
            least: $least,
            most: table!(@most $least $(.. $($most)?)?),
            reads: Reads::$reads,
            run: $run,
        }),*];
    };
    (@most $least:literal) => { $least };
    (@most $least:literal ..) => { usize::MAX };
    (@most $least:literal .. $most:literal) => { $most };
}

// Name, number of arguments, keys it reads, what does it.
table! {
    "del" 1.., Nothing, keys::del;
    "dump" 1, First, keys::dump;
    "exists" 1.., All, keys::exists;
    "expire" 2, Nothing, keys::expire;
    "expireat" 2, Nothing, keys::expireat;
    "expiretime" 1, First, keys::expiretime;
    "keys" 1, Nothing, keys::keys;
    "persist" 1, Nothing, keys::persist;
    "pexpire" 2, Nothing, keys::pexpire;
    "pttl" 1, First, keys::pttl;
    "rename" 2, Nothing, keys::rename;
    "ttl" 1, First, keys::ttl;
    "type" 1, First, keys::type_name;
    "unlink" 1.., Nothing, keys::del;
    "xadd" 4.., Nothing, keys::xadd;

    "bitfield" 1.., Nothing, strings::bitfield;
    "get" 1, First, strings::get;
    "getrange" 3, First, strings::getrange;
    "incr" 1, Nothing, strings::incr;
    "incrby" 2, Nothing, strings::incrby;
    "mget" 1.., All, strings::mget;
    "mset" 2.., Nothing, strings::mset;
    "set" 2.., Nothing, strings::set;
    "setrange" 3, Nothing, strings::setrange;
    "setnx" 2, Nothing, strings::setnx;

    "hdel" 2.., Nothing, hashes::hdel;
    "hexists" 2, First, hashes::hexists;
    "hget" 2, First, hashes::hget;
    "hgetall" 1, First, hashes::hgetall;
    "hincrby" 3, Nothing, hashes::hincrby;
    "hkeys" 1, First, hashes::hkeys;
    "hlen" 1, First, hashes::hlen;
    "hmget" 2.., First, hashes::hmget;
    "hset" 3.., Nothing, hashes::hset;
    "hsetnx" 3, Nothing, hashes::hsetnx;
    "hstrlen" 2, First, hashes::hstrlen;
    "hvals" 1, First, hashes::hvals;

    "llen" 1, First, lists::llen;
    "lmove" 4, Nothing, lists::lmove;
    "lpop" 1..2, Nothing, lists::lpop;
    "lpos" 2.., First, lists::lpos;
    "lpush" 2.., Nothing, lists::lpush;
    "lrange" 3, First, lists::lrange;
    "lrem" 3, Nothing, lists::lrem;
    "lset" 3, Nothing, lists::lset;
    "ltrim" 3, Nothing, lists::ltrim;
    "rpop" 1..2, Nothing, lists::rpop;
    "rpoplpush" 2, Nothing, lists::rpoplpush;
    "rpush" 2.., Nothing, lists::rpush;

    "sadd" 2.., Nothing, sets::sadd;
    "scard" 1, First, sets::scard;
    "sismember" 2, First, sets::sismember;
    "smembers" 1, First, sets::smembers;
    "srandmember" 2, First, sets::srandmember;
    "srem" 2.., Nothing, sets::srem;

    "zadd" 3.., Nothing, sorted_sets::zadd;
    "zcard" 1, First, sorted_sets::zcard;
    "zcount" 3, First, sorted_sets::zcount;
    "zincrby" 3, Nothing, sorted_sets::zincrby;
    "zlexcount" 3, First, zrange::zlexcount;
    "zmscore" 2.., First, sorted_sets::zmscore;
    "zrange" 3.., First, zrange::zrange;
    "zrangebylex" 3.., First, zrange::zrangebylex;
    "zrangebyscore" 3.., First, zrange::zrangebyscore;
    "zrank" 2, First, sorted_sets::zrank;
    "zrem" 2.., Nothing, sorted_sets::zrem;
    "zremrangebyrank" 3, Nothing, zrange::zremrangebyrank;
    "zremrangebyscore" 3, Nothing, zrange::zremrangebyscore;
    "zrevrange" 3..4, First, zrange::zrevrange;
    "zscore" 2, First, sorted_sets::zscore;

    "scan" 1.., Nothing, scan::scan;
    "sscan" 2.., First, scan::sscan;
    "zscan" 2.., First, scan::zscan;

    "cluster" 1.., Nothing, server::cluster;
    "config" 1.., Nothing, server::config;
    "dbsize" 0, Nothing, server::dbsize;
    "flushall" 0..1, Nothing, server::flush;
    "info" 0.., Nothing, server::info;
    "memory" 1.., Nothing, server::memory;
    "publish" 2, Nothing, server::publish;
    "time" 0, Nothing, server::time;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_in_the_table_once() {
        let mut names: Vec<&str> = TABLE.iter().map(|command| command.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(find(b"zrangeByScore").is_some() && find(b"blpop").is_none());
    }
}
