//! What must not compile, and what the compiler says about it.
//!
//! The expected messages are those of the toolchain in `rust-toolchain.toml`; after an update,
//! `TRYBUILD=overwrite cargo test --test persist_ui` writes them anew, to be read before they are kept.

#[test]
fn types_that_cannot_be_kept_are_refused_with_a_remedy() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/refuse_*.rs");
}

#[test]
fn holes_in_the_soundness_model_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/hole_*.rs");
}

#[test]
fn ordinary_programs_compile_under_strict_lints() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass_*.rs");
}
