//! Tests of differences between complete, truncated and invalid descriptions.

use crate::format::SCHEMA_BYTES_MAX;
use crate::persist::SchemaDifference;

fn changes(stored: &str, expected: &str) -> Vec<String> {
    let difference = SchemaDifference::between(stored, expected);
    difference.changes.iter().map(ToString::to_string).collect()
}

#[test]
fn each_kind_of_change_names_its_field() {
    let stored = "A{one@0:u64,gone@8:PMap<B,[u8;4]>,moved@48:B,of@56:u32}#64/8;\
                  B{x@0:u8}#1/1;Kind{Red=0,Green=1}:u8#1/1";
    let expected = "A{one@0:u64,moved@8:B,of@16:i32,new@24:PString}#48/8;\
                    B{x@0:u8,y@1:u8}#2/1;Kind{Red=0,Green=2}:u8#1/1;C{z@0:u8}#1/1";
    assert_eq!(
        changes(stored, expected),
        [
            "A.gone: PMap<B,[u8;4]>, in the object only",
            "A.moved: B, at byte 48 in the object, 8 in the program",
            "A.of: u32 in the object, i32 in the program",
            "A.new: PString, in the program only",
            "B.y: u8, in the program only",
            "Kind.Green: 1 in the object, 2 in the program",
        ]
    );
    assert!(changes(stored, stored).is_empty());
}

#[test]
fn roots_without_fields_are_compared_by_name() {
    let difference = SchemaDifference::between("PVec<[u8;3]>#24/8", "u64#8/8");
    assert_eq!(
        difference.to_string(),
        "stored: `PVec<[u8;3]>`, 24 bytes; expected: `u64`, 8 bytes"
    );
}

#[test]
fn only_the_stored_part_of_a_truncated_description_is_compared() {
    let fields = |of: &str| (0..80).map(|n| format!("field{n}@{}:{of}", n * 8)).collect::<Vec<_>>();
    let whole = |of: &str| format!("A{{{}}}#640/8", fields(of).join(","));
    let stored = &whole("u64")[..SCHEMA_BYTES_MAX];
    let difference = SchemaDifference::between(stored, &whole("u64"));
    assert!(difference.truncated && difference.changes.is_empty(), "{difference}");
    assert!(difference.to_string().contains("1024 bytes"));
    let difference = SchemaDifference::between(stored, &whole("i64"));
    assert!((40..80).contains(&difference.changes.len()), "{difference}");
    assert!(difference.changes.iter().all(|change| change.stored.is_some()));
}

#[test]
fn any_text_is_taken() {
    let known = "A{one@0:u64}#8/8";
    for text in
        ["", "#", "{", "}{", "A{", "A}", ";;;", "A{one@:}#/", "ten numbers", "A{=,@}#9/9", "é{<é"]
    {
        let _ = SchemaDifference::between(text, known).to_string();
        let _ = SchemaDifference::between(known, text).to_string();
        for end in (0..known.len()).filter(|end| known.is_char_boundary(*end)) {
            let _ = SchemaDifference::between(&known[..end], known).to_string();
        }
    }
}
