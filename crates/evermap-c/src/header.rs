//! Compares the headers with the library: every prototype, number, size and offset, and the list of
//! exported functions. If only one side changes, a test fails and names the difference.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use crate::abi::status;
use crate::abi::types::*;
use crate::load::types::*;
use crate::transfer::types::*;

const HEADERS: [&str; 5] = [
    include_str!("../include/evermap.h"),
    include_str!("../include/evermap_transfer.h"),
    include_str!("../include/evermap_load.h"),
    include_str!("../include/fastio.h"),
    include_str!("../include/nvheap.h"),
];

/// Source of the functions that native programs and guests share, and the guests' own.
const NVHEAP_FUNCTIONS: &str = include_str!("../../evermap-heap/src/nvheap.rs");
const GUEST_FUNCTIONS: &str = include_str!("../../evermap-guest/src/c.rs");
const GUEST_HEADER: &str = include_str!("../../evermap-guest/include/nvheap.h");

/// Parameters and result of each function, in Rust types, by name.
type Signatures = BTreeMap<String, (Vec<String>, String)>;

fn without_comments(header: &str) -> String {
    let mut rest = header;
    let mut text = String::new();
    while let Some((before, comment)) = rest.split_once("/*") {
        text.push_str(before);
        rest = comment.split_once("*/").unwrap().1;
    }
    text + rest
}

/// Returns the statements of a header outside of braces, without preprocessor lines.
fn statements(header: &str) -> Vec<String> {
    let text = without_comments(header).replace("\\\n", " ");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let text = lines.collect::<Vec<_>>().join(" ").replace("extern \"C\" {", "");
    let (mut depth, mut statements, mut statement) = (0, Vec::new(), String::new());
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ';' if depth <= 0 => {
                let words: Vec<_> = statement.split_whitespace().collect();
                statements.push(words.join(" "));
                statement.clear();
            }
            c if depth <= 0 => statement.push(c),
            _ => {}
        }
    }
    statements
}

/// Converts a C type to Rust. `declared` is a parameter with its name, or a result without one.
fn rust_type(declared: &str, named: bool) -> String {
    let is_array = declared.contains('[');
    let declared = declared.split('[').next().unwrap();
    let stars = declared.matches('*').count() + usize::from(is_array);
    let words = declared.replace('*', " ");
    let mut words: Vec<_> = words.split_whitespace().collect();
    let is_const = words.contains(&"const");
    words.retain(|word| *word != "const");
    assert_eq!(words.len(), 1 + usize::from(named), "{declared}");
    let mut result = match words[0] {
        "void" if stars == 0 => "()",
        "void" => "c_void",
        "char" => "c_char",
        "int" => "c_int",
        "size_t" => "usize",
        "uint64_t" => "u64",
        "uint32_t" => "u32",
        "uint8_t" => "u8",
        other => other,
    }
    .to_string();
    for level in 0..stars {
        let kind = if is_const && level == 0 { "*const" } else { "*mut" };
        result = format!("{kind} {result}");
    }
    result
}

fn in_headers(headers: &[&str]) -> Signatures {
    let mut found = Signatures::new();
    for statement in headers.iter().flat_map(|header| statements(header)) {
        let is_type = statement.starts_with("typedef") || statement.starts_with("enum");
        if is_type || statement.trim_matches('}').trim().is_empty() {
            continue;
        }
        let (declared, parameters) = statement.split_once('(').unwrap();
        let split = declared.rfind([' ', '*']).unwrap() + 1;
        let (result, name) = declared.split_at(split);
        let parameters = parameters.trim_end_matches(')');
        let parameters = parameters.split(',').filter(|p| p.trim() != "void");
        let parameters = parameters.map(|p| rust_type(p, true)).collect();
        found.insert(name.to_string(), (parameters, rust_type(result, false)));
    }
    found
}

/// Returns the texts of all source files below a directory.
fn sources(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(sources(&path)),
            false => found.push(std::fs::read_to_string(&path).unwrap()),
        }
    }
    found
}

fn in_rust(sources: &[String]) -> Signatures {
    let mut found = Signatures::new();
    for call in sources.iter().flat_map(|source| source.split("#[unsafe(no_mangle)]\n").skip(1)) {
        let (_, call) = call.split_once("extern \"C\" fn ").unwrap();
        let (declared, _) = call.split_once('{').unwrap();
        let declared = declared.split_whitespace().collect::<Vec<_>>().join(" ");
        let (name, rest) = declared.split_once('(').unwrap();
        let (parameters, result) = rest.rsplit_once(')').unwrap();
        let parameters = parameters.split(',').filter(|p| !p.trim().is_empty());
        let parameters = parameters.map(|p| p.split_once(": ").unwrap().1.to_string()).collect();
        let result = result.trim().strip_prefix("-> ").unwrap_or("()").to_string();
        found.insert(name.to_string(), (parameters, result));
    }
    found
}

#[test]
fn every_prototype_is_the_function() {
    let mut sources = sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")));
    sources.push(NVHEAP_FUNCTIONS.to_string());
    let (headers, rust) = (in_headers(&HEADERS), in_rust(&sources));
    assert!(headers.len() > 60, "{}", headers.len());
    for (name, signature) in &headers {
        assert_eq!(rust.get(name), Some(signature), "{name}: left is Rust, right the header");
    }
    for name in rust.keys() {
        assert!(headers.contains_key(name), "{name} is in no header");
    }
    let callbacks = [
        "typedef bool (*em_name_callback)(const char *name, void *context)",
        "typedef void (*em_foreign_callback)(const em_foreign_pointer *pointer, void *context)",
        "typedef bool (*em_finding_callback)(const em_finding *finding, void *context)",
        "typedef bool (*em_audit_callback)(const em_audit_finding *finding, void *context)",
        "typedef bool (*em_moved_callback)(const em_moved *moved, void *context)",
        "typedef bool (*em_explanation_callback)(const em_explanation *explanation, void *context)",
        "typedef bool (*em_progress_callback)(uint64_t arrived_bytes, uint64_t total_bytes, void *context)",
        "typedef bool (*em_load_choice_callback)(const em_load_choice *choice, void *context)",
    ];
    let statements: Vec<String> = HEADERS.iter().flat_map(|header| statements(header)).collect();
    for callback in callbacks {
        assert!(statements.iter().any(|s| s == callback), "{callback}");
    }
}

#[test]
fn guests_have_the_functions_of_nvheap_and_their_own() {
    let shared = in_rust(&[NVHEAP_FUNCTIONS.to_string()]);
    assert_eq!(in_headers(&[include_str!("../include/nvheap.h")]), shared);
    let all = in_rust(&[NVHEAP_FUNCTIONS.to_string(), GUEST_FUNCTIONS.to_string()]);
    assert_eq!(in_headers(&[GUEST_HEADER]), all);
    for level in ["NV_SNAPSHOT = 1", "NV_WRITE = 3"] {
        assert!(GUEST_HEADER.contains(level), "{level}");
        assert!(GUEST_FUNCTIONS.contains(&level.replace(" =", ": c_int =")), "{level}");
    }
}

#[test]
fn the_exports_are_the_declared_functions() {
    let map = include_str!("../evermap.map");
    let (_, names) = map.split_once("global:").unwrap();
    let (names, _) = names.split_once("local:").unwrap();
    let mut names: Vec<_> = names.split(';').map(str::trim).filter(|n| !n.is_empty()).collect();
    names.sort_unstable();
    let headers = in_headers(&HEADERS);
    assert_eq!(names, headers.keys().map(String::as_str).collect::<Vec<_>>());
}

/// Assertions about a struct: its size, and the offset and size of each member.
macro_rules! layout {
    ($text:ident, $type:ident: $($member:ident)*) => {
        $text += &format!("SAME(sizeof({0}), {1});\n", stringify!($type), size_of::<$type>());
        let mut bytes = 0;
        $({
            let offset = offset_of!($type, $member);
            let size = size_of_member(|it: &$type| &raw const it.$member);
            let (name, member) = (stringify!($type), stringify!($member));
            $text += &format!("SAME(offsetof({name}, {member}), {offset});\n");
            $text += &format!("SAME(sizeof((({name} *)0)->{member}), {size});\n");
            bytes += size;
        })*
        assert_eq!(bytes, size_of::<$type>(), "all members, and no holes");
    };
}

fn size_of_member<T, M>(_: impl Fn(&T) -> *const M) -> usize {
    size_of::<M>()
}

fn assertions() -> String {
    let mut text = String::from(
        "#include <evermap_load.h>\n#include <evermap_transfer.h>\n#define SAME(a, b) _Static_assert((a) == (b), #a \" is \" #b)\n",
    );
    layout!(text, em_store_options:
        size arena_bytes window_base window_end busy_timeout_ms catalog_timeout_ms verify
        other_builds arena_registry application application_key);
    layout!(text, em_write_options:
        size durability interval_ms log_bytes_max hot_bytes_max checkpoint_after_ms when_log_full
        log_full_pages protection early_read in_children foreign_pointers reserved);
    layout!(text, em_foreign_pointer:
        size object address value into message);
    layout!(text, em_object_info:
        size created_ns file_bytes base_address sequence root_bytes regions capacity_bytes
        backed_bytes blocks allocated_bytes large_blocks large_bytes mode protection root_tag uuid
        name root_description);
    layout!(text, em_finding:
        size severity repairable file object what found expected remedy);
    layout!(text, em_pointer_sample:
        path address value);
    layout!(text, em_audit_options:
        size memory_bytes samples process_id);
    layout!(text, em_audit_report:
        size sequence blocks bytes reached_blocks reached_bytes leaked_blocks leaked_bytes leaked_heads looked_at interior damage suspect damaged_chunks typing has_root doubt reserved);
    layout!(text, em_audit_finding:
        size kind severity confidence reserved count to samples sample_count);
    layout!(text, em_copy_options:
        size unverified replace);
    layout!(text, em_copy_report:
        size objects bytes findings);
    layout!(text, em_rebase_options:
        size to dry_run force samples reserved);
    layout!(text, em_rebase_report:
        size from to arenas objects moved kept met kept_in);
    layout!(text, em_moved:
        size object typing kind count samples sample_count);
    layout!(text, em_export_options:
        size force reserved);
    layout!(text, em_export_report:
        size sequence pages bytes pointers_elsewhere);
    layout!(text, em_import_options:
        size name create reserved);
    layout!(text, em_import_report:
        size base_address old_base_address file_bytes moved kept points_elsewhere reserved name old_name);
    layout!(text, em_explanation:
        size kind copies bytes what path why);
    layout!(text, em_transfer_options:
        size engine cancelled progress explain context durability reflink verify resume keep_going
        one_file_system threads sparse begin_bytes length_bytes without connections raw discard wait_ms
        idle_ms);
    layout!(text, em_transfer_report:
        size size_bytes data_bytes hole_bytes resumed_bytes calls wall_ns user_ns system_ns flush_ns
        minor_faults major_faults voluntary_switches involuntary_switches files directories failed
        not_kept copied_permille verified engine why published connections name);
    layout!(text, em_load_options:
        size method rules recording replay begin_bytes length_bytes memory_bytes_max touched_permille
        written_permille order latency cache fork threads may_map trust_rules record);
    layout!(text, em_load_facts:
        size bytes resident_bytes dirty_bytes direct_block_bytes available_bytes device_bytes_per_s
        processors is_in_memory is_compressed shares_blocks is_unchangeable reserved file_system
        available_limit);
    layout!(text, em_load_choice:
        size method why threads maps_the_file);
    layout!(text, em_residency:
        size private_bytes huge_bytes file_bytes swapped_bytes cached_bytes duplicate_bytes);
    layout!(text, em_load_report:
        size bytes first_use_ns complete_ns wall_ns user_ns system_ns minor_faults major_faults
        voluntary_switches involuntary_switches peak_resident_bytes private_bytes huge_bytes
        file_bytes swapped_bytes cached_bytes duplicate_bytes windows_on_demand windows_streamed
        direct_bytes buffered_bytes hole_bytes moves_retried pages_copied windows_read_again
        threads_replaced device_permille serves_system_calls threads refused recording
        reserved method why);
    layout!(text, em_recording:
        size windows_touched touched_permille written_permille order reserved);
    layout!(text, em_load_file:
        path options);
    for (number, name, _) in status::ALL {
        text += &format!("SAME({}, {number});\n", name.to_str().unwrap());
    }
    for (name, number) in CONSTANTS {
        text += &format!("SAME(EM_{name}, {number});\n");
    }
    text += &format!("SAME(EM_LOAD_NONE, {LOAD_NONE}u);\n");
    text += &format!("SAME(EM_TAG_BYTES, {TAG_BYTES});\n");
    text += &format!("SAME(EM_NAME_BUFFER_BYTES, {NAME_BUFFER_BYTES});\n");
    text += &format!("SAME(EM_DESCRIPTION_BUFFER_BYTES, {DESCRIPTION_BUFFER_BYTES});\n");
    text += "SAME(sizeof(em_status), 4); SAME(sizeof(em_mode), 4); SAME(sizeof(em_advice), 4); SAME(sizeof(bool), 1);\n";
    let parts: Vec<_> = env!("CARGO_PKG_VERSION").split('.').collect();
    for (part, number) in ["MAJOR", "MINOR", "PATCH"].iter().zip(parts) {
        text += &format!("SAME(EM_VERSION_{part}, {number});\n");
    }
    text
}

#[test]
fn every_number_size_and_offset_is_the_same_in_c() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("same.c");
    std::fs::write(&source, assertions()).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-fsyntax-only", "-I"]);
    compiler.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/include")).arg(&source);
    let output = compiler.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn every_number_of_the_header_is_known_here() {
    let text = HEADERS.map(without_comments).concat();
    let members = text.lines().filter_map(|line| line.trim().split_once(" = "));
    let members: Vec<_> = members.filter(|(name, _)| name.starts_with("EM_")).collect();
    assert_eq!(members.len(), 1 + status::ALL.len() + CONSTANTS.len());
}

#[test]
fn the_header_names_the_errno_that_is_set() {
    for (number, name, errno) in status::ALL.iter().filter(|(number, ..)| *number != status::IO) {
        let name = name.to_str().unwrap();
        let line = HEADERS[0].lines().find(|l| l.contains(&format!(" {name} = {number}"))).unwrap();
        let said = line.split(['[', ']']).nth(1).unwrap();
        let source = include_str!("abi/status.rs");
        let row = source.lines().find(|l| l.contains(&format!("{} = {number},", &name[3..])));
        assert!(row.unwrap().contains(&format!(", {said};")), "{name}: {errno} and {said}");
    }
}
