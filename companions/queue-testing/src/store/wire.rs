//! Reading requests: arrays of bulk strings.

/// Bytes that are no request.
#[derive(Debug, PartialEq)]
pub(crate) struct Malformed;

/// A request, and how many bytes it took.
type Request = (Vec<Vec<u8>>, usize);

/// The first request in the bytes; `None` while it is not complete.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Request>, Malformed> {
    let Some((count, mut at)) = header(bytes, b'*')? else { return Ok(None) };
    let mut words = Vec::new();
    for _ in 0..count {
        let Some((length, start)) = header(&bytes[at..], b'$')? else { return Ok(None) };
        at += start;
        let Some(word) = bytes.get(at..at + length + 2) else { return Ok(None) };
        words.push(word.strip_suffix(b"\r\n").ok_or(Malformed)?.to_vec());
        at += length + 2;
    }
    Ok(Some((words, at)))
}

/// A sign, a number and the end of the line; returns the number, and where the next line begins.
fn header(bytes: &[u8], sign: u8) -> Result<Option<(usize, usize)>, Malformed> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let number = bytes[..end].strip_prefix(&[sign]).and_then(|digits| std::str::from_utf8(digits).ok());
    let number = number.and_then(|digits| digits.parse().ok()).ok_or(Malformed)?;
    Ok(Some((number, end + 2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_taken_when_it_is_complete() {
        let request = b"*2\r\n$4\r\nPING\r\n$2\r\n\r\n\r\n*1\r\n";
        assert_eq!(parse(request), Ok(Some((vec![b"PING".to_vec(), b"\r\n".to_vec()], 22))));
        for end in 0..22 {
            assert_eq!(parse(&request[..end]), Ok(None), "{end}");
        }
        assert_eq!(parse(b"PING\r\n"), Err(Malformed));
        assert_eq!(parse(b"*1\r\n$1\r\nab\r\n"), Err(Malformed));
    }
}
