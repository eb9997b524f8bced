//! What the crates may build on.

use std::process::Command;

/// Crates that users put into production, each with its default features.
const SHIPPED: [&str; 13] = [
    "queue",
    "queue-core",
    "queue-macros",
    "queue-redis",
    "queue-worker",
    "queue-scheduler",
    "queue-metrics",
    "queue-otel",
    "queue-crypt",
    "queue-admin",
    "queue-web",
    "queue",
    "queue-cli",
];

/// The names of all crates that this one is built from.
fn built_from(name: &str) -> Vec<String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["tree", "--locked", "--offline", "--edges", "normal,build", "--prefix", "none", "--package", name]);
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn nothing_for_tests_is_linked_into_what_is_shipped() {
    for name in SHIPPED {
        let found = built_from(name);
        assert!(found.iter().any(|found| found == name), "{found:?}");
        let kit: Vec<_> =
            found.iter().filter(|found| ["queue-testing", "mlua", "mlua-sys"].contains(&&***found)).collect();
        assert!(kit.is_empty(), "{name} is built from {kit:?}");
    }
    // The test sees what it is for.
    assert!(built_from("queue-testing").iter().any(|found| found == "mlua"));
}

#[test]
fn clients_and_workers_are_built_without_the_administration() {
    for name in ["queue-redis", "queue-worker", "queue-scheduler", "queue-metrics", "queue"] {
        assert!(!built_from(name).iter().any(|found| found == "queue-admin"), "{name}");
    }
    assert!(built_from("queue-cli").iter().any(|found| found == "queue-admin"));
}
