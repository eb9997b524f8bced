use super::*;

/// Errors as programs write them. What stands in one group has one cause; no two groups have the same.
const CAUSES: &[&[&str]] = &[
    // Go's net, and what wraps it.
    &[
        "dial tcp 10.0.0.7:5432: connect: connection refused",
        "dial tcp 10.0.3.12:5432: connect: connection refused",
        "dial tcp [::1]:6379: connect: connection refused",
        "dial tcp [fd00:12::7]:6379: connect: connection refused",
    ],
    &[
        "dial tcp: lookup db-1.internal on 10.96.0.10:53: no such host",
        "dial tcp: lookup db-12.internal on 10.96.0.11:53: no such host",
    ],
    &["read tcp 10.1.2.3:41234->10.1.2.9:6379: i/o timeout", "read tcp 10.1.2.4:59870->10.1.2.9:6379: i/o timeout"],
    &["read tcp 10.1.2.3:41234->10.1.2.9:6379: read: connection reset by peer"],
    &[
        r#"Post "https://api.example.com/v1/charges": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"#,
        r#"Post "https://api.example.com/v1/refunds": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"#,
    ],
    &[r#"Get "https://api.example.com/v1/users/7": context deadline exceeded"#],
    &["context deadline exceeded"],
    &["context canceled"],
    &["unexpected EOF"],
    &[
        "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-11-25T16:40:12Z is after 2026-11-24T23:59:59Z",
        "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-11-25T17:02:44Z is after 2026-11-24T23:59:59Z",
    ],
    &["rpc error: code = Unavailable desc = upstream connect error"],
    &["rpc error: code = NotFound desc = user 7 not found", "rpc error: code = NotFound desc = user 1204 not found"],
    // Go's runtime, as asynq writes panics.
    &[
        "panic [/app/worker/mail.go:120]: runtime error: index out of range [5] with length 3",
        "panic [/app/worker/mail.go:131]: runtime error: index out of range [17] with length 16",
    ],
    &["panic [/app/worker/mail.go:120]: runtime error: invalid memory address or nil pointer dereference"],
    &["asynq: task lease expired"],
    &[
        "json.Unmarshal failed: invalid character 'x' looking for beginning of value: skip retry for the task",
        "json.Unmarshal failed: invalid character '}' looking for beginning of value: skip retry for the task",
    ],
    &["json: cannot unmarshal string into Go struct field Payload.user_id of type int"],
    // Rust.
    &["Connection refused (os error 111)"],
    &["No such file or directory (os error 2)"],
    &["missing field `user_id` at line 1 column 17", "missing field `to` at line 1 column 240"],
    &[
        "invalid type: string \"seven\", expected u64 at line 1 column 17",
        "invalid type: string \"x \\\" y\", expected u64 at line 3 column 2",
    ],
    &["called `Option::unwrap()` on a `None` value"],
    &[
        "error sending request for url (https://example.com/a/17): operation timed out",
        "error sending request for url (https://example.com/a/4): operation timed out",
    ],
    &["index out of bounds: the len is 3 but the index is 7", "index out of bounds: the len is 0 but the index is 0"],
    &["attempt to subtract with overflow"],
    // Databases.
    &[
        r#"ERROR: duplicate key value violates unique constraint "users_email_key" (SQLSTATE 23505)"#,
        r#"ERROR: duplicate key value violates unique constraint "orders_pkey" (SQLSTATE 23505)"#,
    ],
    &["ERROR: could not serialize access due to concurrent update (SQLSTATE 40001)"],
    &["ERROR: deadlock detected (SQLSTATE 40P01)"],
    &[
        "Error 1062 (23000): Duplicate entry 'ada' for key 'users.name'",
        "Error 1062 (23000): Duplicate entry 'bob' for key 'users.name'",
    ],
    &["Error 1213 (40001): Deadlock found when trying to get lock; try restarting transaction"],
    &["pq: sorry, too many clients already"],
    &[
        "mongo: E11000 duplicate key error collection: shop.orders index: _id_ dup key: { _id: 17 }",
        "mongo: E11000 duplicate key error collection: shop.orders index: _id_ dup key: { _id: 90210 }",
    ],
    &["OOM command not allowed when used memory > 'maxmemory'."],
    &["MOVED 3999 127.0.0.1:6381", "MOVED 12182 127.0.0.1:6382"],
    &["READONLY You can't write against a read only replica."],
    // HTTP and mail: the code is the cause.
    &["unexpected status 503 from 10.0.0.7", "unexpected status 503 from 10.0.0.8"],
    &["unexpected status 404 from 10.0.0.7"],
    &["unexpected status: 404 from 10.0.0.7"],
    &["HTTP/1.1 502 Bad Gateway"],
    &["HTTP/1.1 504 Gateway Time-out"],
    &[
        "api error: StatusCode: 403, RequestID: 7f3c9a10-4b2d-4e5f-8a6b-0c1d2e3f4a5b, AccessDenied",
        "api error: StatusCode: 403, RequestID: 00000000-4b2d-4e5f-8a6b-0c1d2e3f4a5b, AccessDenied",
    ],
    &["api error: StatusCode: 400, RequestID: 7f3c9a10-4b2d-4e5f-8a6b-0c1d2e3f4a5b, AccessDenied"],
    &[
        "550 5.1.1 <ada@example.com>: Recipient address rejected",
        "550 5.1.1 <bob.b+x@mail.example.org>: Recipient address rejected",
    ],
    &["rate limited, retry after 30s", "rate limited, retry after 1m30s", "rate limited, retry after 1.5s"],
    &["No such customer: cus_NffrFeUfNV2Hib", "No such customer: cus_9s6XKzkNRiz8i3"],
    // Programs.
    &["exit status 1"],
    &["exit status 137"],
    &["signal: killed"],
    &["command failed with exit code 2 after 12 s", "command failed with exit code 2 after 340 s"],
    &["error[E0308]: mismatched types"],
    &["error[E0277]: the trait bound is not satisfied"],
    // Python, Node.
    &["KeyError: 'user_id'", "KeyError: 'email'"],
    &["TypeError: Cannot read properties of undefined (reading 'name')"],
    &["ECONNREFUSED 127.0.0.1:5672", "ECONNREFUSED ::1:5672"],
    &["<Response [429]>", "<Response [503]>"],
    // Ids, times and numbers of all kinds.
    &["order 0f8fad5b-d9cb-469f-a165-70867728950e is locked", "order 7c9e6679-7425-40de-944b-e07fc1f90ae7 is locked"],
    &[
        "order 17 is locked",
        "order 9000000001 is locked",
        "order af3a9b2c is locked",
        "order 5f3a9b2c is locked",
        "order 01ARZ3NDEKTSV4RRFFQ69G5FAV is locked",
    ],
    &["commit deadbeefcafe: not found", "commit 3e1f00d: not found", "commit 0x7ffe12: not found"],
    &["upload-17.png: 10MB is more than 8MB", "upload-4.png: 900KB is more than 512KB"],
    &["balance -5 is below 0", "balance 17 is below 100", "balance 1,204.50 is below 2,000"],
    &["lag at 2026-11-25 16:40:12.123 +0000 UTC", "lag at 2026/11/25 09:01:00 UTC", "lag at 16:40 UTC"],
    &["shard7 is away", "shard12 is away"],
    &["it can't be done", "it  can't\tbe done", "it can't be done\nat main.rs:7", "\n  it can't be done"],
    &["it can't be don't"],
    &["имя не найдено: 17", "имя не найдено: 18"],
];

#[test]
fn what_is_together_and_what_is_apart() {
    assert!(CAUSES.iter().map(|group| group.len()).sum::<usize>() >= 60);
    let mut seen = std::collections::BTreeMap::new();
    for group in CAUSES {
        let first = pattern(group[0]);
        for error in *group {
            assert_eq!(pattern(error), first, "{error}");
        }
        let other = seen.insert(first.clone(), group[0]);
        assert_eq!(other, None, "{:?} has the pattern of another cause: {first}", group[0]);
    }
}

#[test]
fn a_pattern_can_be_read() {
    for (error, expected) in [
        ("dial tcp [::1]:6379: connect: connection refused", "dial tcp <address>: connect: connection refused"),
        (
            "Error 1062 (23000): Duplicate entry 'ada' for key 'k'",
            "Error 1062 (<n>): Duplicate entry \"…\" for key \"…\"",
        ),
        ("a: HTTP/1.1 502 Bad Gateway after 3 tries", "a: HTTP/1.1 502 Bad Gateway after <n> tries"),
        ("error: 3 of 5 tasks", "error: <n> of <n> tasks"),
        ("std::io::Error at src/main.rs:17:4", "std::io::Error at src/main.rs:<n>:<n>"),
        ("range 5-10, -7, x=-7", "range <n>-<n>, <n>, x=<n>"),
        ("an \"open quotation", "an \"open quotation"),
        ("mail to ada@example.com.", "mail to <mail>."),
        ("at 2026-11-25T16:40:12.5+01:00: late", "at <time>: late"),
        ("", ""),
    ] {
        assert_eq!(pattern(error), expected);
    }
    assert_eq!(pattern(&"é".repeat(1_000)).len(), MOST);
}

#[test]
fn a_fingerprint_is_of_a_type_and_is_read_as_it_was_written() {
    let of = |kind: &str, error: &str| Fingerprint::new(kind, error).unwrap();
    let fingerprint = of("email:send", "order 17 is locked");
    assert_eq!(fingerprint, of("email:send", "order 18 is locked\nmore"));
    assert_ne!(fingerprint, of("email:digest", "order 17 is locked"));
    // Addresses of pages and filters have it: it is the same tomorrow.
    assert_eq!(fingerprint.to_string(), "v1-6d6fe51de3c6");
    assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
    assert_eq!(Fingerprint::new("t", " \n "), None);
    for text in ["", "v1-", "6d6fe51de3c6", "v2-6d6fe51de3c6", "v1-6D6FE51DE3C6", "v1-6d6fe51de3c", "v1-+d6fe51de3c6"] {
        assert_eq!(text.parse::<Fingerprint>(), Err(NoFingerprint), "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_has_a_pattern_that_is_its_own(text in "\\PC{0,40}|[0-9a-fT:.\\[\\]'\"@ -]{0,60}") {
        let once = pattern(&text);
        proptest::prop_assert!(once.len() <= 4 * text.len() + 4);
        proptest::prop_assert_eq!(Fingerprint::new("t", &text).is_none(), text.trim().is_empty());
    }
}
