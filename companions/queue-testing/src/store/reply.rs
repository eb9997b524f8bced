//! Answers, and how they look on the wire.

/// What a command answers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reply {
    /// A word such as `OK`.
    Status(&'static str),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Reply>),
    /// An array before RESP3, a set there.
    Set(Vec<Reply>),
    /// A flat array before RESP3, a map there.
    Map(Vec<(Reply, Reply)>),
    /// A flat array before RESP3, an array of pairs there.
    Pairs(Vec<(Reply, Reply)>),
    /// Text before RESP3, a double there.
    Double(f64),
    /// What is said without having been asked; an array before RESP3.
    Push(Vec<Reply>),
}

/// Why a command was not done: the code word and the text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal(pub(crate) String);

impl Refusal {
    pub(crate) fn wrong_type() -> Self {
        Self("WRONGTYPE Operation against a key holding the wrong kind of value".to_owned())
    }

    pub(crate) fn syntax() -> Self {
        Self("ERR syntax error".to_owned())
    }

    pub(crate) fn not_an_integer() -> Self {
        Self("ERR value is not an integer or out of range".to_owned())
    }
}

pub(crate) type Answer = Result<Reply, Refusal>;

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        answer.unwrap_or_else(|refusal| Reply::Error(refusal.0))
    }
}

impl Reply {
    pub(crate) const OK: Reply = Reply::Status("OK");

    pub(crate) fn text(text: impl Into<Vec<u8>>) -> Self {
        Reply::Bulk(text.into())
    }

    pub(crate) fn count(count: usize) -> Self {
        Reply::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    pub(crate) fn or_nil(value: Option<Vec<u8>>) -> Self {
        value.map_or(Reply::Nil, Reply::Bulk)
    }

    pub(crate) fn bulks(values: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Reply::Array(values.into_iter().map(Reply::Bulk).collect())
    }

    /// Appends what goes over the wire.
    pub(crate) fn encode(&self, resp3: bool, out: &mut Vec<u8>) {
        match self {
            Reply::Status(word) => line(out, '+', word),
            Reply::Error(text) => line(out, '-', &text.replace(['\r', '\n'], " ")),
            Reply::Integer(number) => line(out, ':', &number.to_string()),
            Reply::Bulk(bytes) => {
                line(out, '$', &bytes.len().to_string());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Reply::Nil => out.extend_from_slice(if resp3 { b"_\r\n" } else { b"$-1\r\n" }),
            Reply::Array(items) => sequence(out, '*', items.iter(), resp3),
            Reply::Set(items) => sequence(out, if resp3 { '~' } else { '*' }, items.iter(), resp3),
            Reply::Push(items) => sequence(out, if resp3 { '>' } else { '*' }, items.iter(), resp3),
            Reply::Map(pairs) if resp3 => {
                line(out, '%', &pairs.len().to_string());
                pairs.iter().flat_map(|(key, value)| [key, value]).for_each(|item| item.encode(resp3, out));
            }
            Reply::Pairs(pairs) if resp3 => {
                line(out, '*', &pairs.len().to_string());
                pairs.iter().for_each(|(first, second)| sequence(out, '*', [first, second].into_iter(), resp3));
            }
            Reply::Map(pairs) | Reply::Pairs(pairs) => {
                line(out, '*', &(2 * pairs.len()).to_string());
                pairs.iter().flat_map(|(first, second)| [first, second]).for_each(|item| item.encode(resp3, out));
            }
            Reply::Double(number) if resp3 => line(out, ',', &super::number::show(*number)),
            Reply::Double(number) => Reply::text(super::number::show(*number)).encode(resp3, out),
        }
    }
}

fn line(out: &mut Vec<u8>, sign: char, text: &str) {
    out.extend_from_slice(format!("{sign}{text}\r\n").as_bytes());
}

fn sequence<'a>(out: &mut Vec<u8>, sign: char, items: impl ExactSizeIterator<Item = &'a Reply>, resp3: bool) {
    line(out, sign, &items.len().to_string());
    items.for_each(|item| item.encode(resp3, out));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_decides_about_maps_pairs_and_numbers() {
        let pairs = Reply::Pairs(vec![(Reply::text("a"), Reply::Double(1.5))]);
        let encode = |reply: &Reply, resp3| {
            let mut out = Vec::new();
            reply.encode(resp3, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(encode(&pairs, false), "*2\r\n$1\r\na\r\n$3\r\n1.5\r\n");
        assert_eq!(encode(&pairs, true), "*1\r\n*2\r\n$1\r\na\r\n,1.5\r\n");
        assert_eq!(encode(&Reply::Map(vec![(Reply::Nil, Reply::OK)]), true), "%1\r\n_\r\n+OK\r\n");
        assert_eq!(encode(&Reply::Error("ERR two\nlines".into()), true), "-ERR two lines\r\n");
    }
}
