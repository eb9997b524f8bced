//! Mistakes that do not compile, and what the compiler says about them.
//!
//! They stand in this crate because the first run checks all that their package depends on once more: the fewer, the sooner.

#[test]
fn mistakes_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
