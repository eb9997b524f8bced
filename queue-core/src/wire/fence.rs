/// The offset in an encoded task message from which on its bytes can change during its life.
///
/// Type, payload, id and queue (fields 1 to 4) stay as they were enqueued while a task is being worked
/// on; retries, error text and times come later. A worker that acknowledges a run proves that the
/// message is the one it took by sending only these last bytes and the length, so that large payloads
/// do not travel back. Go and prost write fields in order of their numbers; where some other writer did
/// not, the offset is 0 and the whole message is compared.
///
/// ```
/// use queue_core::wire::{TaskMessage, mutable_tail};
///
/// let message = TaskMessage { r#type: "t".into(), queue: "q".into(), id: "1".into(), retry: 25, ..Default::default() };
/// let bytes = message.to_bytes();
/// assert_eq!(bytes[mutable_tail(&bytes)..], [0x28, 25]);
/// ```
pub fn mutable_tail(message: &[u8]) -> usize {
    let mut at = 0;
    let mut last_field = 0;
    let mut tail = None;
    while at < message.len() {
        let start = at;
        let Some((key, after_key)) = varint(message, at) else { return 0 };
        let field = key >> 3;
        if field < last_field {
            return 0;
        }
        last_field = field;
        if field > 4 && tail.is_none() {
            tail = Some(start);
        }
        let end = match key & 7 {
            0 => varint(message, after_key).map(|(_, end)| end),
            1 => after_key.checked_add(8),
            2 => varint(message, after_key)
                .and_then(|(len, start)| usize::try_from(len).ok().and_then(|len| start.checked_add(len))),
            5 => after_key.checked_add(4),
            _ => None,
        };
        match end {
            Some(end) if end <= message.len() => at = end,
            _ => return 0,
        }
    }
    tail.unwrap_or(message.len())
}

fn varint(bytes: &[u8], mut at: usize) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(at)?;
        at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some((value, at));
        }
    }
    None
}
