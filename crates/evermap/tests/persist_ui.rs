//! Code that must not compile, and the compiler's messages.
//!
//! The expected messages are those of one compiler version. After an update, `TRYBUILD=overwrite
//! cargo test --test persist_ui` writes them again; review them before you keep them.

/// Compiler version of the expected messages.
const COMPILER: &str = "rustc 1.95.";

fn same_wording() -> bool {
    if cfg!(not(feature = "serde")) {
        eprintln!(
            "SKIPPED: compiler messages are compared with the feature `serde`, as `make test` does"
        );
        return false;
    }
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = std::process::Command::new(rustc).arg("--version").output();
    let version = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    match version {
        Ok(version) if version.starts_with(COMPILER) => true,
        other => {
            eprintln!(
                "SKIPPED: compiler messages are compared under {COMPILER}x, this is {other:?}"
            );
            false
        }
    }
}

#[test]
fn types_that_cannot_be_stored_are_refused_with_a_remedy() {
    if !same_wording() {
        return;
    }
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/refuse_*.rs");
}

#[test]
fn holes_in_the_soundness_model_do_not_compile() {
    if !same_wording() {
        return;
    }
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/hole_*.rs");
}

#[test]
fn ordinary_programs_compile_under_strict_lints() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass_*.rs");
}
