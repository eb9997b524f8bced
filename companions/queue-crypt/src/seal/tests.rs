use proptest::prelude::*;

use super::*;

const PLACE: Place<'static> = Place { task_type: "user:paid", queue: "mail", id: "7" };

fn keys() -> KeyRing {
    KeyRing::new([("2026-11", [1; 32]), ("2026-05", [2; 32])]).unwrap()
}

fn sealed(what: &What, payload: &[u8]) -> (Vec<u8>, BTreeMap<String, String>) {
    let (sealed, said) = seal(&keys(), Binding::Task, PLACE, what, payload).unwrap();
    (sealed, said.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn fields(paths: &[&str]) -> What {
    What::Fields(paths.iter().map(|path| (*path).to_owned()).collect())
}

#[test]
fn a_sealed_payload_opens_for_its_task_alone() {
    let tampered = Err(OpenError::Tampered { id: "2026-11".to_owned() });
    for what in [What::Whole, fields(&["card"])] {
        let payload = br#"{"card":"4242"}"#;
        let (bytes, said) = sealed(&what, payload);
        assert_eq!(open(&keys(), PLACE, &said, &bytes), Ok(Some(payload.to_vec())));
        for other in
            [Place { task_type: "user:lost", ..PLACE }, Place { queue: "low", ..PLACE }, Place { id: "8", ..PLACE }]
        {
            assert_eq!(open(&keys(), other, &said, &bytes), tampered, "{other:?}");
        }
    }
}

#[test]
fn no_byte_can_be_changed_and_none_be_missing() {
    for what in [What::Whole, fields(&["card"])] {
        let (bytes, said) = sealed(&what, br#"{"card":"4242"}"#);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(open(&keys(), PLACE, &said, &changed).is_err(), "byte {at} of {what:?}");
            assert!(open(&keys(), PLACE, &said, &bytes[..at]).is_err(), "{at} bytes of {what:?}");
        }
    }
}

#[test]
fn no_header_can_be_changed_and_none_be_missing() {
    for what in [What::Whole, fields(&["card", "name"])] {
        let (bytes, said) = sealed(&what, br#"{"card":"4242","name":"Ada"}"#);
        for name in said.keys() {
            let mut without = said.clone();
            without.remove(name);
            assert!(open(&keys(), PLACE, &without, &bytes).is_err(), "without {name}");
        }
        for (name, value) in [
            (headers::HOW, "1 type"),
            (headers::HOW, "2 task"),
            (headers::KEY, "2026-05"),
            (headers::FIELDS, r#"["card"]"#),
            (headers::FIELDS, "[]"),
            (headers::FIELDS, ""),
            (headers::FIELDS, r#"["name","card"]"#),
            (headers::TAG, "AAAA"),
        ] {
            let mut changed = said.clone();
            changed.insert(name.to_owned(), value.to_owned());
            let opened = open(&keys(), PLACE, &changed, &bytes);
            // A tag where none is needed is nobody's harm.
            let harmless = name == headers::TAG && what == What::Whole;
            assert_eq!(opened.is_err(), !harmless, "{name}: {value}: {opened:?}");
        }
    }
}

#[test]
fn older_keys_open_what_they_sealed_and_unknown_ones_are_named() {
    let old = KeyRing::new([("2026-05", [2; 32])]).unwrap();
    let (bytes, said) = seal(&old, Binding::Task, PLACE, &What::Whole, b"secret").unwrap();
    let said: BTreeMap<String, String> = said.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    assert_eq!(open(&keys(), PLACE, &said, &bytes), Ok(Some(b"secret".to_vec())));
    let new = KeyRing::new([("2026-11", [1; 32])]).unwrap();
    let unknown = open(&new, PLACE, &said, &bytes).unwrap_err();
    assert!(unknown.to_string().contains(r#"the key "2026-05", which this key ring does not have"#), "{unknown}");
    // Another key under the same id.
    let other = KeyRing::new([("2026-05", [3; 32])]).unwrap();
    assert_eq!(open(&other, PLACE, &said, &bytes), Err(OpenError::Tampered { id: "2026-05".to_owned() }));
}

#[test]
fn around_encrypted_fields_everything_stays_as_it_was_written() {
    let payload =
        r#"{"z":1.10,"big":12345678901234567890123,"card":{"number":"4242","pin":7},"a":[1, 2],"name":"Ada"}"#;
    let (bytes, said) = sealed(&fields(&["card.number", "name", "absent", "card.absent"]), payload.as_bytes());
    let text = String::from_utf8(bytes.clone()).unwrap();
    assert!(text.starts_with(r#"{"z":1.10,"big":12345678901234567890123,"card":{"number":""#), "{text}");
    assert!(
        text.contains(r#""pin":7},"a":[1, 2],"name":""#) && !text.contains("4242") && !text.contains("Ada"),
        "{text}"
    );
    assert_eq!(said[headers::FIELDS], r#"["card.number","name","absent","card.absent"]"#);
    assert_eq!(open(&keys(), PLACE, &said, &bytes), Ok(Some(payload.as_bytes().to_vec())));
    // A field and then all around it.
    let forged = text.replace("1.10", "9.99");
    assert!(open(&keys(), PLACE, &said, forged.as_bytes()).is_err(), "a plain field was changed");
    let (bytes, said) = sealed(&fields(&["card.number", "card"]), payload.as_bytes());
    assert_eq!(open(&keys(), PLACE, &said, &bytes), Ok(Some(payload.as_bytes().to_vec())));
}

#[test]
fn a_payload_without_fields_is_refused_and_not_sent_in_the_clear() {
    for payload in ["", "null", "[1]", "7", r#"{"card":7}"#, r#"{"card":{"n":1},"card":{"n":2}}"#, "{\"card\":"] {
        let refused = seal(&keys(), Binding::Task, PLACE, &fields(&["card.n"]), payload.as_bytes());
        assert!(matches!(refused, Err(SealError::Field { .. })), "{payload}: {refused:?}");
    }
}

#[test]
fn the_same_payload_never_looks_the_same() {
    let (first, _) = sealed(&What::Whole, b"secret");
    let (second, _) = sealed(&What::Whole, b"secret");
    assert_ne!(first, second);
    assert_eq!(first.len(), 24 + 6 + 16, "nonce, text, tag");
}

proptest! {
    #[test]
    fn every_payload_comes_back(payload: Vec<u8>) {
        let (bytes, said) = sealed(&What::Whole, &payload);
        prop_assert_eq!(open(&keys(), PLACE, &said, &bytes), Ok(Some(payload)));
    }

    #[test]
    fn whatever_claims_to_be_encrypted_opens_or_not(payload: Vec<u8>, how in "(1 task|.{0,8})", fields in ".{0,20}") {
        let said = BTreeMap::from([
            (headers::HOW.to_owned(), how),
            (headers::KEY.to_owned(), "2026-11".to_owned()),
            (headers::FIELDS.to_owned(), fields),
        ]);
        let _ = open(&keys(), PLACE, &said, &payload);
    }
}

#[test]
fn a_payload_opens_in_all_of_its_family_and_an_older_one_where_it_was_sealed() {
    let in_family = |queue| Place { queue, ..PLACE };
    let (bytes, said) = seal(&keys(), Binding::Task, in_family("mail}p9"), &What::Whole, b"4242").unwrap();
    let mut said: BTreeMap<_, _> = said.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let opened = |said: &BTreeMap<String, String>, bytes: &[u8], queue| {
        open(&keys(), in_family(queue), said, bytes).ok().flatten()
    };
    for queue in ["mail", "mail}p9", "mail}@web-1"] {
        assert_eq!(opened(&said, &bytes, queue).unwrap(), b"4242", "{queue}");
    }
    let bound = Bound { binding: Binding::Task, id: "2026-05", place: in_family("mail}p9"), list: "" };
    let older = encrypt(keys().cipher("2026-05").unwrap(), b"4242", &bound.data("")).unwrap();
    said.insert(headers::KEY.to_owned(), "2026-05".to_owned());
    assert_eq!(opened(&said, &older, "mail}p9").unwrap(), b"4242");
    assert_eq!(opened(&said, &older, "mail"), None);
}
