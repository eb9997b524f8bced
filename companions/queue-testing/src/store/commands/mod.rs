//! The commands on keys, one table. What is not in it is refused by name, as Redis refuses what it does
//! not know.

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
            "del" | "exists" | "mget" | "touch" | "unlink" => args.len(),
            "copy" | "lmove" | "rename" | "renamenx" | "rpoplpush" => 2,
            "cluster" | "config" | "dbsize" | "echo" | "flushall" | "flushdb" | "info" | "keys" | "memory"
            | "publish" | "role" | "scan" | "time" => 0,
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
    "copy" 2..3, Nothing, keys::copy;
    "del" 1.., Nothing, keys::del;
    "dump" 1, First, keys::dump;
    "exists" 1.., All, keys::exists;
    "expire" 2..3, Nothing, keys::expire;
    "expireat" 2..3, Nothing, keys::expireat;
    "expiretime" 1, First, keys::expiretime;
    "keys" 1, Nothing, keys::keys;
    "persist" 1, Nothing, keys::persist;
    "pexpire" 2..3, Nothing, keys::pexpire;
    "pexpireat" 2..3, Nothing, keys::pexpireat;
    "pexpiretime" 1, First, keys::pexpiretime;
    "pttl" 1, First, keys::pttl;
    "rename" 2, Nothing, keys::rename;
    "renamenx" 2, Nothing, keys::renamenx;
    "touch" 1.., All, keys::exists;
    "ttl" 1, First, keys::ttl;
    "type" 1, First, keys::type_name;
    "unlink" 1.., Nothing, keys::del;
    "xadd" 4.., Nothing, keys::xadd;

    "append" 2, Nothing, strings::append;
    "decr" 1, Nothing, strings::decr;
    "decrby" 2, Nothing, strings::decrby;
    "get" 1, First, strings::get;
    "getdel" 1, Nothing, strings::getdel;
    "incr" 1, Nothing, strings::incr;
    "incrby" 2, Nothing, strings::incrby;
    "mget" 1.., All, strings::mget;
    "mset" 2.., Nothing, strings::mset;
    "psetex" 3, Nothing, strings::psetex;
    "set" 2.., Nothing, strings::set;
    "setex" 3, Nothing, strings::setex;
    "setnx" 2, Nothing, strings::setnx;
    "strlen" 1, First, strings::strlen;

    "hdel" 2.., Nothing, hashes::hdel;
    "hexists" 2, First, hashes::hexists;
    "hget" 2, First, hashes::hget;
    "hgetall" 1, First, hashes::hgetall;
    "hincrby" 3, Nothing, hashes::hincrby;
    "hkeys" 1, First, hashes::hkeys;
    "hlen" 1, First, hashes::hlen;
    "hmget" 2.., First, hashes::hmget;
    "hmset" 3.., Nothing, hashes::hmset;
    "hset" 3.., Nothing, hashes::hset;
    "hsetnx" 3, Nothing, hashes::hsetnx;
    "hstrlen" 2, First, hashes::hstrlen;
    "hvals" 1, First, hashes::hvals;

    "lindex" 2, First, lists::lindex;
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
    "smismember" 2.., First, sets::smismember;
    "spop" 1, Nothing, sets::spop;
    "srandmember" 1..2, First, sets::srandmember;
    "srem" 2.., Nothing, sets::srem;

    "zadd" 3.., Nothing, sorted_sets::zadd;
    "zcard" 1, First, sorted_sets::zcard;
    "zcount" 3, First, sorted_sets::zcount;
    "zincrby" 3, Nothing, sorted_sets::zincrby;
    "zmscore" 2.., First, sorted_sets::zmscore;
    "zpopmax" 1..2, Nothing, sorted_sets::zpopmax;
    "zpopmin" 1..2, Nothing, sorted_sets::zpopmin;
    "zrange" 3.., First, zrange::zrange;
    "zrangebyscore" 3.., First, zrange::zrangebyscore;
    "zrank" 2, First, sorted_sets::zrank;
    "zrem" 2.., Nothing, sorted_sets::zrem;
    "zremrangebyrank" 3, Nothing, zrange::zremrangebyrank;
    "zremrangebyscore" 3, Nothing, zrange::zremrangebyscore;
    "zrevrange" 3..4, First, zrange::zrevrange;
    "zrevrangebyscore" 3.., First, zrange::zrevrangebyscore;
    "zrevrank" 2, First, sorted_sets::zrevrank;
    "zscore" 2, First, sorted_sets::zscore;

    "hscan" 2.., First, scan::hscan;
    "scan" 1.., Nothing, scan::scan;
    "sscan" 2.., First, scan::sscan;
    "zscan" 2.., First, scan::zscan;

    "cluster" 1.., Nothing, server::cluster;
    "config" 1.., Nothing, server::config;
    "dbsize" 0, Nothing, server::dbsize;
    "echo" 1, Nothing, server::echo;
    "flushall" 0..1, Nothing, server::flush;
    "flushdb" 0..1, Nothing, server::flush;
    "info" 0.., Nothing, server::info;
    "memory" 1.., Nothing, server::memory;
    "publish" 2, Nothing, server::publish;
    "role" 0, Nothing, server::role;
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
