//! Renders pages, for the tests of the viewer.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::common::Place;

pub fn own_pages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../evermap-view/tests/pages")
}

/// Renders a page into `picture`. Returns the command's report.
pub fn render(place: &Place, page: &str, picture: &str, more: &[&str]) -> Value {
    let mut arguments = vec!["render", page, "-o", picture, "--json"];
    arguments.extend(more);
    let ran = place.run(&arguments);
    assert_eq!(ran.code, 0, "{ran:?}");
    serde_json::from_str(&ran.out).unwrap()
}

pub fn is_warm(report: &Value) -> bool {
    report["warm"].as_bool().unwrap()
}

pub fn reasons(report: &Value) -> String {
    let reasons = report["reasons"].as_array().unwrap().iter();
    reasons.map(|reason| reason.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

pub fn bytes(place: &Place, name: &str) -> Vec<u8> {
    std::fs::read(place.path(name)).unwrap()
}
