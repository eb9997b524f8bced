//! URLs of Redis. A password never shows, however broken the URL is.

use queue_core::mask::mask_passwords;
use queue_redis::{Redis, RedisOptions};

use crate::words::Words;

/// No text that the fuzzer makes up by accident, and nothing that a URL would escape.
const PASSWORD: &str = "s3cr3tpassw0rd";

/// Reads the bytes as a URL, and as the parts of one that has a password.
///
/// # Panics
/// When the password shows.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    read(&text);
    // Masking what is masked changes nothing.
    let masked = mask_passwords(text.into_owned());
    assert_eq!(mask_passwords(masked.clone()), masked);

    let mut words = Words::new(data);
    let scheme = match words.byte() % 8 {
        0 => "redis".to_owned(),
        1 => "rediss".to_owned(),
        2 => "redis-socket".to_owned(),
        3 => "redis+unix".to_owned(),
        4 => "redis-sentinel".to_owned(),
        5 => "unix".to_owned(),
        _ => words.text().replace(['/', ':'], ""),
    };
    let user = words.text().replace(['/', '?', '#', '@', ':'], "");
    let rest = String::from_utf8_lossy(words.rest()).into_owned();
    // The fuzzer learns the word from the comparison; then it does not only stand where a password does.
    if [&scheme, &user, &rest].iter().any(|part| part.to_lowercase().contains("s3cr3t")) {
        return;
    }
    for url in
        [format!("{scheme}://{user}:{PASSWORD}@{rest}"), format!("{scheme}:///run/r.sock?pass={PASSWORD}&x={rest}")]
    {
        let shown = read(&url);
        assert!(!shown.contains(PASSWORD), "{url:?}: {shown}");
    }
}

/// All that is ever shown of a URL.
fn read(url: &str) -> String {
    match Redis::lazy(url, RedisOptions::default()) {
        Ok(redis) => format!("{} {redis:?}", redis.target()),
        Err(error) => format!("{error} {error:?}"),
    }
}
