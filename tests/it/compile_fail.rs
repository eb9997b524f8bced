//! Mistakes that do not compile, and what the compiler says about them.

#[test]
fn mistakes_do_not_compile() {
    trybuild::TestCases::new().compile_fail("it/ui/*.rs");
}
