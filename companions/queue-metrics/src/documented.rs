//! `docs/observability.md` against the definitions.

use crate::families::Families;
use crate::shown::Shown;

#[test]
fn the_documentation_lists_every_metric_with_type_and_labels_and_no_other() {
    let document = include_str!("../../../docs/observability.md");
    let mut rows: Vec<String> =
        document.lines().filter(|line| line.starts_with("| `asynq_")).map(str::to_owned).collect();
    let (families, shown) = (Families::new(), Shown::new());
    for collector in families.all().into_iter().chain(shown.all()) {
        let descriptions = collector.desc();
        let [description] = &descriptions[..] else { panic!("{descriptions:?}") };
        let name = &description.fq_name;
        let at = rows.iter().position(|row| row.starts_with(&format!("| `{name}` | ")));
        let row = rows.swap_remove(at.unwrap_or_else(|| panic!("{name} is not documented")));
        let labels: Vec<String> = description.variable_labels.iter().map(|label| format!("`{label}`")).collect();
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells[3], labels.join(", "), "{name}");
        if let Some(family) = collector.collect().first() {
            assert_eq!(cells[2], format!("{:?}", family.get_field_type()).to_lowercase(), "{name}");
        }
    }
    assert!(rows.is_empty(), "documented, but not there: {rows:#?}");
}
