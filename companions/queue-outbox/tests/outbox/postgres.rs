//! A PostgreSQL for all tests of a program, and a database in it for each.

use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};

struct Postgres {
    /// Its input ends with this process, and that ends it.
    _server: Child,
    directory: std::path::PathBuf,
    port: u16,
    certificate: Vec<u8>,
}

/// The directory of the server's programs, which Debian keeps out of the path.
fn programs() -> std::path::PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debians = versions.map(|version| version.path().join("bin")).filter(|bin| bin.join("initdb").exists());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = debians.chain(std::env::split_paths(&path).filter(|bin| bin.join("initdb").exists()));
    all.next().expect("PostgreSQL is installed: scripts/setup does it")
}

fn start() -> Postgres {
    // Somebody else may enter it; postgres, for example.
    let directory = tempfile::Builder::new().prefix("outbox-").tempdir().unwrap().keep();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(directory.join("server.crt"), signed.cert.pem()).unwrap();
    std::fs::write(directory.join("server.key"), signed.signing_key.serialize_pem()).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(directory.join("server.key"), private).unwrap();
    let mut server = Command::new("sh");
    server.args(["-c", include_str!("postgres.sh"), "postgres"]).arg(&directory).arg(programs()).arg(port.to_string());
    let mut server = server.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let socket = directory.join(format!(".s.PGSQL.{port}"));
    let began = Instant::now();
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        assert!(server.try_wait().unwrap().is_none(), "PostgreSQL has ended");
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{}",
            std::fs::read_to_string(directory.join("postgres.log")).unwrap_or_default()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Postgres { _server: server, directory, port, certificate: signed.cert.pem().into_bytes() }
}

fn postgres() -> &'static Postgres {
    static POSTGRES: OnceLock<Postgres> = OnceLock::new();
    POSTGRES.get_or_init(start)
}

/// A database of its own.
pub(crate) struct OneDatabase {
    name: String,
}

impl OneDatabase {
    pub(crate) async fn new() -> Self {
        Self::of("UTF8").await
    }

    /// The same of this encoding.
    pub(crate) async fn of(encoding: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        tokio::task::spawn_blocking(postgres).await.unwrap();
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let all = Self { name: "postgres".to_owned() };
        // Right after it has begun to listen, it still starts up.
        let began = Instant::now();
        while let Err(error) = tokio_postgres::connect(&all.address(), NoTls).await {
            assert!(began.elapsed() < Duration::from_secs(60), "{error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        all.client()
            .await
            .batch_execute(&format!("CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0"))
            .await
            .unwrap();
        Self { name }
    }

    /// By way of the socket.
    pub(crate) fn address(&self) -> String {
        let Postgres { directory, port, .. } = postgres();
        format!("host={} port={port} user=postgres dbname={}", directory.display(), self.name)
    }

    /// By way of TCP.
    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@localhost:{}/{}", postgres().port, self.name)
    }

    pub(crate) fn certificate() -> &'static [u8] {
        &postgres().certificate
    }

    pub(crate) async fn client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.address(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    pub(crate) async fn count(&self, condition: &str) -> i64 {
        let count = format!("SELECT count(*) FROM queue_outbox WHERE {condition}");
        self.client().await.query_one(&count, &[]).await.unwrap().get(0)
    }
}
