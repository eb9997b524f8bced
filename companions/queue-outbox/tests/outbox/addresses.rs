//! How a database is reached, and what is said where it is not.

use queue_outbox::{Database, DatabaseError};
use queue_redis::TlsOptions;

use crate::Place;
use crate::postgres::OneDatabase;

async fn failure(database: Result<Database, DatabaseError>) -> String {
    let error = match database {
        Ok(database) => database.check().await.unwrap_err(),
        Err(error) => error,
    };
    format!("{error:?}")
}

#[tokio::test]
async fn tls_is_used_where_it_is_asked_for_and_checks_who_answers() {
    let database = OneDatabase::new().await;
    let (url, trusted) = (database.url(), TlsOptions { ca: Some(OneDatabase::certificate().to_vec()), client: None });
    let is_encrypted = async |database: Database| {
        database.init().await.unwrap();
        database.check().await.map(drop)
    };
    // To this machine there is none, unless it is asked for.
    is_encrypted(Database::new(&url).unwrap()).await.unwrap();
    is_encrypted(Database::with_tls(&format!("{url}?sslmode=require"), &trusted).unwrap()).await.unwrap();
    is_encrypted(Database::new(&format!("{url}?sslmode=require#insecure")).unwrap()).await.unwrap();
    let told = failure(Database::new(&format!("{url}?sslmode=require"))).await;
    assert!(told.contains("certificate") && told.contains("--database-ca") && told.contains("#insecure"), "{told}");
    let nonsense = TlsOptions { ca: Some(b"text".to_vec()), client: None };
    let told = failure(Database::with_tls(&format!("{url}?sslmode=require"), &nonsense)).await;
    assert!(told.contains("cannot read the certificates"), "{told}");
}

#[tokio::test]
async fn what_is_wrong_is_said_without_the_password() {
    let database = OneDatabase::new().await;
    let told = failure(Database::new(&database.address())).await;
    assert!(told.contains("there is no table queue_outbox") && told.contains("queuectl outbox init"), "{told}");
    for address in [
        "postgres://shop:secret@127.0.0.1:1/shop",
        "postgres://shop:secret@localhost:none/shop",
        "postgres://shop:secret@localhost/shop?sslmode=perhaps",
        "host=localhost port=none password=se#secret",
        "redis://shop:secret@localhost",
        "secret",
    ] {
        let told = failure(Database::new(address)).await;
        assert!(!told.contains("secret"), "{told}");
        assert!(
            told.contains("cannot reach PostgreSQL at 127.0.0.1:1/shop") || told.contains("write it like postgres://"),
            "{address}: {told}"
        );
    }
    let told = failure(Database::new("postgres://shop@localhost/shop?sslmode=verify-full")).await;
    assert!(told.contains("disable, prefer or require"), "{told}");
    let unknown = database.url().replace("test_", "other_");
    let told = failure(Database::new(&unknown)).await;
    assert!(told.contains("cannot reach PostgreSQL at localhost:") && told.contains("does not exist"), "{told}");
}

#[tokio::test]
async fn another_table_and_missing_rights_are_told_before_anything_is_relayed() {
    let database = OneDatabase::new().await;
    let client = database.client().await;
    client.batch_execute("CREATE TABLE queue_outbox (seq int, task json)").await.unwrap();
    let address = Database::new(&database.address()).unwrap();
    for told in [address.init().await.unwrap_err(), address.check().await.unwrap_err()] {
        assert!(
            matches!(told, DatabaseError::OtherTable { .. }) && told.to_string().contains("does not exist"),
            "{told}"
        );
    }
    client.batch_execute("DROP TABLE queue_outbox").await.unwrap();
    address.init().await.unwrap();
    let name = format!("reader_{}", std::process::id());
    let reader = format!("CREATE ROLE {name} LOGIN; GRANT SELECT, UPDATE ON queue_outbox TO {name}");
    client.batch_execute(&reader).await.unwrap();
    let reader = Database::new(&database.address().replace("user=postgres", &format!("user={name}"))).unwrap();
    assert_eq!(reader.waiting().await.unwrap().waiting, 0, "it may look");
    let told = reader.check().await.unwrap_err();
    assert!(matches!(told, DatabaseError::NoRights { .. }) && told.to_string().contains("GRANT"), "{told}");
    client.batch_execute(&format!("DROP OWNED BY {name}; DROP ROLE {name}")).await.unwrap();
}

/// In a database without an encoding, and in one that lacks letters, one row holds up no other one.
#[tokio::test]
async fn rows_that_are_no_text_and_reasons_that_cannot_be_written_hold_up_nothing() {
    for encoding in ["SQL_ASCII", "LATIN1"] {
        let place = Place::within(OneDatabase::of(encoding).await).await;
        let client = place.database.client().await;
        let odd = match encoding {
            "SQL_ASCII" => {
                "INSERT INTO queue_outbox (task) VALUES (convert_from('\\x7b2274797065223a22636166e9227d', 'SQL_ASCII')::json)"
            }
            _ => "INSERT INTO queue_outbox (task) VALUES ('{\"type\":\"t\",\"quéue\":1}')",
        };
        client.batch_execute(odd).await.unwrap();
        place.say(r#"{"type":"good","queue":"q"}"#).await;
        assert_eq!(place.relayed().await, [1, 0, 1, 0], "{encoding}");
        let why = place.address().refused(10).await.unwrap()[0].refusal.clone();
        assert!(why.contains("UTF-8") || why.contains("u{e9}"), "{encoding}: {why}");
    }
}
