//! Attributes of serde's that the derive can't follow, and fields that can't be read.

use evermap::{PString, Persist, PersistDeserialize, Ptr};

#[derive(Persist, PersistDeserialize, serde::Serialize)]
#[repr(C)]
struct Flat {
    #[serde(flatten)]
    name: PString,
}

#[derive(Persist, PersistDeserialize)]
#[repr(C)]
#[serde(rename_all = "camel_case")]
struct Rule {
    name: PString,
}

#[derive(Persist, PersistDeserialize)]
#[repr(C)]
struct Pointing {
    other: Ptr<u64>,
}

fn main() {}
