#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! * [`wire`]: the protobuf messages that Go asynq reads and writes.
//! * [`keys`]: the names of every Redis key.
//! * [`queue_name`]: names of queues, and of those that belong to another one: priorities.
//! * [`state`]: the seven states of a task.
//! * [`task`], [`options`], [`codec`]: what a client hands in, and the rules that compose it into a
//!   message ([`options::compose`]).
//! * [`outcome`]: what a handler answers, and [`outcome::next_step`], the pure function which decides
//!   what happens to the task next.
//! * [`attempt`]: what is remembered of attempts that failed.
//! * [`progress`], [`task_log`]: what a running task says of itself.
//! * [`retry`]: how long to wait before the next attempt.
//! * [`budget`], [`exhausted`]: what a task says itself of when it is given up, and what follows then.
//! * [`limits`]: margins, intervals and bounds, each once.
//! * [`doctor`]: what is wrong with a task or a Redis, and what helps.
//! * [`limit`]: how many tasks of a key may run at once, and start in a time.
//! * [`fingerprint`]: which failures have the same cause.
//! * [`flow`]: ids, states and events of batches.
//! * [`broadcast`]: who is chosen for a task that several servers are to run.
//! * [`info`]: what is shown to somebody who looks at a task.
//! * [`option_text`]: options as the text that Go's schedulers write.
//! * [`mask`]: passwords in texts that were not meant to hold any.
//! * [`clock`], [`duration`]: time, and Go's way of writing durations.

pub mod attempt;
pub mod broadcast;
pub mod budget;
pub mod clock;
pub mod codec;
pub mod crash;
pub mod doctor;
pub mod duration;
pub mod event;
pub mod exhausted;
pub mod fingerprint;
pub mod flow;
pub mod forecast;
pub mod info;
pub mod keys;
pub mod limit;
pub mod limits;
pub mod mask;
pub mod option_text;
pub mod options;
pub mod outcome;
pub mod progress;
pub mod publish;
pub mod queue_name;
pub mod registry;
pub mod retry;
pub mod state;
pub mod target;
pub mod task;
pub mod task_log;
pub mod unique;
pub mod wire;

pub use clock::{Clock, SystemClock};
pub use codec::{Codec, DecodeError, EncodeError, Json, MessagePack, Protobuf, Raw};
pub use info::TaskInfo;
pub use options::{OptionError, RawTask, TaskOptions};
pub use outcome::{Failure, Outcome, Step};
pub use publish::{PublishOutcome, PublishPolicy};
pub use retry::RetryPolicy;
pub use state::TaskState;
pub use task::{FromMessage, FromMessageError, IntoTask, Task};
pub use unique::UniqueUntil;
pub use wire::TaskMessage;

/// Whether a name is this one, or begins like a pattern with a `*` at its end.
#[doc(hidden)]
pub fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}

/// What `Debug` writes for an error: its text and its causes, because that is what `main` prints of the error that it
/// returns, and what `unwrap` and `expect` print.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_text {
    ($($error:ty),*) => {
        $(impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&$crate::outcome::error_text(self))
            }
        })*
    };
}

/// What `Debug` writes of a type that has more than can be shown: these fields.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_some {
    ($type:ident $(, $field:ident)*) => {
        impl ::std::fmt::Debug for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($type))$(.field(stringify!($field), &self.$field))*.finish_non_exhaustive()
            }
        }
    };
}

/// An enum whose variants are words elsewhere: each word stands with its variant, and `as_str` and `from_name` follow from that, as does
/// `ALL` where that is asked for.
#[doc(hidden)]
#[macro_export]
macro_rules! words {
    ($(#[$about:meta])* $vis:vis enum $name:ident with ALL { $($(#[$what:meta])* $variant:ident: $word:literal,)* }) => {
        $crate::words! {
            $(#[$about])* $vis enum $name { $($(#[$what])* $variant: $word,)* }
        }

        impl $name {
            /// All of them.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];
        }
    };
    ($(#[$about:meta])* $vis:vis enum $name:ident { $($(#[$what:meta])* $variant:ident: $word:literal,)* }) => {
        $(#[$about])* $vis enum $name { $($(#[$what])* $variant,)* }

        impl $name {
            /// The word for it, as it is stored, told in JSON, and said on the command line.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// The one of this word.
            pub fn from_name(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}
