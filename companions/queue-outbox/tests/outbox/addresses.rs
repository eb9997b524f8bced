//! How a database is reached, and what is said where it is not.

use queue_outbox::{Database, DatabaseError};
use queue_redis::TlsOptions;

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
        "postgres://shop:secret@localhost/shop#secure",
        "redis://shop:secret@localhost",
        "secret",
    ] {
        let told = failure(Database::new(address)).await;
        assert!(!told.contains("secret"), "{told}");
        assert!(
            told.contains("cannot reach PostgreSQL at 127.0.0.1/shop") || told.contains("write it like postgres://"),
            "{address}: {told}"
        );
    }
    let unknown = database.url().replace("test_", "other_");
    let told = failure(Database::new(&unknown)).await;
    assert!(told.contains("cannot reach PostgreSQL at localhost/other_") && told.contains("does not exist"), "{told}");
}
