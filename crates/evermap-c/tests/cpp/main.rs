//! Tests of `evermap.hpp` with C++ programs: compiled with all warnings as errors, run in several
//! processes, some of them under sanitizers. Also tests objects shared by programs in Rust, C++ and
//! C.
#![allow(clippy::unwrap_used)]

// The C programs use more of it.
#[allow(dead_code)]
#[path = "../library/staged.rs"]
mod staged;
#[path = "../../../evermap-cli/tests/common/walkthrough.rs"]
mod walkthrough;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use staged::{Link, WARNINGS, compile_all, here, staged};

const SANITIZED: [&str; 5] = [
    "-std=c++20",
    "-O1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-D_GLIBCXX_ASSERTIONS",
];

/// Returns a file of the tests.
fn source(name: &str) -> PathBuf {
    here().join("tests/cpp").join(name)
}

fn example(name: &str) -> PathBuf {
    here().join("../../examples/cpp").join(name)
}

/// Runs a program that must succeed, and returns its output.
fn run<A: AsRef<OsStr>>(program: &Path, arguments: &[A]) -> String {
    staged::run(Command::new(program).args(arguments).env_remove("LD_LIBRARY_PATH"))
}

/// Returns a working compiler, or prints that it is missing.
fn compiler(name: &str) -> Option<&str> {
    let works = Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    if !works {
        eprintln!("SKIPPED: there is no `{name}`");
    }
    works.then_some(name)
}

/// Returns the machine's C++ compiler; Debian's is GCC.
fn cpp() -> Option<&'static str> {
    compiler("c++")
}

/// Returns a seed from the variable EVERMAP_SEED, or else from the clock, and prints it.
fn seed(what: &str) -> u64 {
    let given = std::env::var("EVERMAP_SEED").ok().and_then(|text| text.parse().ok());
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos().into();
    let seed = given.unwrap_or_else(clock);
    println!("{what}: EVERMAP_SEED={seed}");
    seed
}

/// Runs the programs that use every function, with one compiler and set of flags.
fn everything(compiler: &str, flags: &[&str], link: Link, what: &str) {
    let directory = tempfile::tempdir().unwrap();
    let build = |name: &str| compile(compiler, &source(name), directory.path(), link, flags);
    let stores = tempfile::tempdir().unwrap();
    run(&build("behaviour.cpp"), &[stores.path()]);
    run(&build("transfer.cpp"), &[stores.path()]);
    run(&build("load.cpp"), &[stores.path()]);
    run(&build("shared.cpp"), &[stores.path()]);

    let (containers, store) = (build("containers.cpp"), stores.path().join("containers"));
    let seed = seed(what).to_string();
    for round in 0..5 {
        run(&containers, &[store.to_str().unwrap(), &seed, &round.to_string()]);
    }

    let (polymorphic, store) = (build("polymorphic.cpp"), stores.path().join("polymorphic"));
    let mut places = Vec::new();
    for _ in 0..3 {
        run(&polymorphic, &[&store, Path::new("write")]);
        places.push(run(&polymorphic, &[&store, Path::new("read")]));
    }
    run(&polymorphic, &[&store, Path::new("more")]);
    places.dedup();
    if places.len() == 1 {
        eprintln!("SKIPPED: code is not put at random addresses here: {}", places[0]);
    }
}

/// Runs the elements program: elements created outside of the object, for every function of a
/// container that creates some; a second process checks them again.
fn elements(compiler: &str, flags: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let source = source("elements.cpp");
    let program = compile(compiler, &source, directory.path(), Link::Shared, flags);
    let store = directory.path().join("store");
    for _ in 0..2 {
        assert_eq!(run(&program, &[&store]), "1146 cases, all looked at\n");
    }
}

/// Compiles a program of one file into a directory.
fn compile(compiler: &str, source: &Path, into: &Path, link: Link, flags: &[&str]) -> PathBuf {
    let program = into.join(source.file_stem().unwrap());
    compile_all(compiler, &[source.to_path_buf()], program, link, flags)
}

#[test]
fn elements_with_long_texts_are_created_in_the_object_by_every_function_in_cpp17() {
    let Some(cpp) = cpp() else { return };
    elements(cpp, &["-std=c++17", "-O0"]);
}

#[test]
#[ignore = "takes long: a minute to compile"]
fn elements_with_long_texts_are_created_in_the_object_by_every_function_in_cpp20_under_sanitizers()
{
    let Some(cpp) = cpp() else { return };
    elements(cpp, &[&SANITIZED[..], &["-O0"]].concat());
}

#[test]
#[ignore = "takes long: a minute to compile"]
fn elements_with_long_texts_are_created_in_the_object_by_every_function_with_clang() {
    let Some(clang) = compiler("clang++") else { return };
    elements(clang, &["-std=c++17", "-O0"]);
    elements(clang, &["-std=c++20", "-O0"]);
}

/// Runs the members program: elements with members of every standard container, moved in from
/// outside.
fn members(compiler: &str, flags: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let source = source("members.cpp");
    let program = compile(compiler, &source, directory.path(), Link::Shared, flags);
    let output = run(&program, &[directory.path().join("store")]);
    assert!(output.ends_with(" cases, many refused\n"), "{output}");
}

#[test]
fn elements_that_are_moved_in_arrive_whole_or_are_refused_whatever_their_members_are() {
    let Some(cpp) = cpp() else { return };
    members(cpp, &["-std=c++17", "-O0"]);
}

#[test]
#[ignore = "takes long: minutes to compile"]
fn elements_that_are_moved_in_arrive_whole_or_are_refused_under_sanitizers_and_with_clang() {
    let Some(cpp) = cpp() else { return };
    members(cpp, &[&SANITIZED[..], &["-O0"]].concat());
    let Some(clang) = compiler("clang++") else { return };
    members(clang, &["-std=c++17", "-O2"]);
    let Some(clang) = clang_with_libcxx() else { return };
    members(clang, &["-std=c++20", "-O0", "-stdlib=libc++"]);
}

#[test]
fn pointers_out_of_objects_are_caught_by_the_commit_and_flipped_roots_are_no_signal() {
    let Some(cpp) = cpp() else { return };
    let directory = tempfile::tempdir().unwrap();
    let flags = ["-std=c++17", "-O1", "-fPIE", "-pie"];
    let foreign = compile(cpp, &source("foreign.cpp"), directory.path(), Link::Shared, &flags);
    let output = run(&foreign, &[directory.path().join("store"), directory.path().join("other")]);
    assert!(output.contains(" refused, "), "{output}");
}

#[test]
fn containers_errors_and_virtual_functions_keep_their_promises_in_cpp17() {
    let Some(cpp) = cpp() else { return };
    everything(cpp, &["-std=c++17", "-O2", "-fPIE", "-pie"], Link::Shared, "C++17");
}

#[test]
fn containers_errors_and_virtual_functions_keep_their_promises_in_cpp20_under_sanitizers() {
    let Some(cpp) = cpp() else { return };
    everything(cpp, &SANITIZED, Link::Static, "C++20, sanitizers");
}

#[test]
fn containers_errors_and_virtual_functions_keep_their_promises_with_clang() {
    let Some(clang) = compiler("clang++") else { return };
    everything(clang, &["-std=c++17", "-O2"], Link::Shared, "clang");
}

/// Returns Clang with its own standard library, or prints that it is missing.
fn clang_with_libcxx() -> Option<&'static str> {
    let clang = compiler("clang++")?;
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program.cpp");
    std::fs::write(&program, "#include <string>\nint main() { return std::string().size(); }\n")
        .unwrap();
    let mut command = Command::new(clang);
    command.arg("-stdlib=libc++").arg(&program).arg("-o").arg(directory.path().join("program"));
    let works = command.output().is_ok_and(|output| output.status.success());
    if !works {
        eprintln!("SKIPPED: clang++ finds no libc++ (Debian: libc++-dev libc++abi-dev)");
    }
    works.then_some(clang)
}

#[test]
#[ignore = "takes long: minutes to compile"]
fn containers_errors_and_virtual_functions_keep_their_promises_with_clang_and_libcxx() {
    let Some(clang) = clang_with_libcxx() else { return };
    let ways = [("-std=c++17", "-O0", Link::Shared), ("-std=c++20", "-O1", Link::Static)];
    for (standard, optimised, link) in ways {
        everything(clang, &[standard, optimised, "-stdlib=libc++"], link, standard);
    }
}

#[test]
fn an_object_of_another_standard_library_is_refused() {
    let (Some(cpp), Some(clang)) = (cpp(), clang_with_libcxx()) else { return };
    let directory = tempfile::tempdir().unwrap();
    let (store, text) = (directory.path().join("store"), directory.path().join("one.txt"));
    let (store, text) = (store.to_str().unwrap(), text.to_str().unwrap());
    std::fs::write(text, "A rose is a rose.\n").unwrap();
    let build = |compiler: &str, flags: &[&str]| {
        let into = directory.path().join(flags.len().to_string());
        std::fs::create_dir(&into).unwrap();
        compile(compiler, &example("word_index.cpp"), &into, Link::Shared, flags)
    };
    let theirs = build(clang, &["-std=c++20", "-stdlib=libc++"]);
    let ours = build(cpp, &["-std=c++17"]);
    run(&theirs, &[store, "add", text]);
    assert_eq!(run(&theirs, &[store, "find", "rose"]), "rose: 1\n");
    let mut command = Command::new(&ours);
    let output = command.args([store, "find", "rose"]).env_remove("LD_LIBRARY_PATH").output();
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("holds another type"), "{errors}");
    assert!(errors.contains("libc++ abi") && errors.contains("libstdc++"), "{errors}");
}

#[test]
fn the_header_compiles_as_cpp23_and_in_two_files_of_one_program() {
    let Some(cpp) = cpp() else { return };
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("other.cpp");
    std::fs::write(&other, "#include <evermap.hpp>\nint other() { return 0; }\n").unwrap();
    let text = other.to_str().unwrap();
    compile(cpp, &source("deaths.cpp"), directory.path(), Link::Shared, &["-std=c++23", text]);
}

#[test]
fn mistakes_stop_the_program_and_are_named() {
    let Some(cpp) = cpp() else { return };
    let directory = tempfile::tempdir().unwrap();
    let flags = ["-std=c++17", "-O2"];
    let deaths = compile(cpp, &source("deaths.cpp"), directory.path(), Link::Shared, &flags);
    for (mistake, message) in [
        ("swap", "containers of different objects were swapped"),
        ("heap", "in the process's heap was moved into an object"),
        ("across", "a container of one object was moved into another"),
        ("twice", "was it freed before?"),
        ("foreign", "it lies outside the object"),
    ] {
        let store = directory.path().join(mistake);
        let mut command = Command::new(&deaths);
        let output =
            command.arg(store).arg(mistake).env_remove("LD_LIBRARY_PATH").output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(message), "{mistake}: {errors}");
        let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
        assert_eq!(signal, Some(libc::SIGABRT), "{mistake}: {errors}");
    }
}

#[test]
fn types_that_cannot_live_in_an_object_do_not_compile() {
    let Some(cpp) = cpp() else { return };
    let directory = tempfile::tempdir().unwrap();
    // The header is parsed once for all of them.
    let mut precompile = Command::new(cpp);
    precompile.args(WARNINGS).args(["-std=c++17", "-x", "c++-header", "-o"]);
    precompile.arg(directory.path().join("evermap.hpp.gch"));
    staged::run(precompile.arg(staged().join("include/evermap.hpp")));
    let refusal = "holds addresses that mean nothing in another process";
    let member = "a member of this class would keep its memory in the process's heap";
    for (number, (statement, message)) in [
        ("(void)s.make<std::string>();", "in the process's heap; use the one with"),
        ("(void)s.make<evermap::vector<std::string>>()->emplace_back();", "use the one with"),
        ("(void)s.make<evermap::map<int, std::function<void()>>>()->try_emplace(1);", refusal),
        ("(void)s.make<std::shared_ptr<int>>();", refusal),
        ("(void)s.make<std::unique_ptr<int>>();", refusal),
        ("(void)s.make<void (*)()>();", refusal),
        ("evermap::session t(s);", "use of deleted function"),
        ("(void)s.make<evermap::polymorphic<int>>();", "only classes with virtual functions"),
        (
            "struct root { std::map<std::string, int> m; }; (void)s.find_or_make_root<root>();",
            member,
        ),
        ("struct root { int n; std::string s; }; (void)s.find_or_make_root<root>();", member),
        (
            "struct part { int n; std::vector<int> v; }; struct root { double d; part p; }; \
          (void)s.find_or_make_root<root>();",
            member,
        ),
        ("struct root { char n[9]; std::shared_ptr<int> p; }; (void)s.make<root>();", member),
        (
            "struct root { evermap::string s; std::function<void()> f; }; \
          (void)s.make<evermap::list<root>>()->emplace_back();",
            member,
        ),
        (
            "struct root { evermap::map<evermap::string, int> m; evermap::unique_ptr<root> next; \
          root* first; evermap::vector<root> all; std::optional<evermap::string> o; int n[4]; \
          void (*f)(); }; (void)s.find_or_make_root<root>();",
            "",
        ),
        ("(void)s.make<evermap::vector<int>>();", ""),
    ]
    .iter()
    .enumerate()
    {
        let program = directory.path().join(format!("{number}.cpp"));
        let text =
            format!("#include <evermap.hpp>\nvoid f(evermap::session& s) {{ {statement} }}\n");
        std::fs::write(&program, text).unwrap();
        let mut command = Command::new(cpp);
        command.args(WARNINGS).args(["-std=c++17", "-fsyntax-only", "-I"]).arg(directory.path());
        let output = command.arg(program).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), message.is_empty(), "{statement}: {errors}");
        assert!(errors.contains(message), "{statement}: {errors}");
    }
}

/// Returns the statuses of `evermap.h`, parsed from its text, and the expected class of each.
fn statuses_and_classes() -> Vec<(String, String)> {
    let header = std::fs::read_to_string(here().join("include/evermap.h")).unwrap();
    let (_, body) = header.split_once("typedef enum em_status {").unwrap();
    let (body, _) = body.split_once("} em_status;").unwrap();
    let names = body.lines().filter_map(|line| line.trim().split_once(" = "));
    let names = names.map(|(name, _)| name.to_string()).filter(|name| name != "EM_OK");
    let class = |name: &str| match name {
        "EM_IO" => "io_error".to_string(),
        "EM_DESERIALIZE" => "deserialize_error".to_string(),
        "EM_INTERNAL" => "internal_error".to_string(),
        other => other["EM_".len()..].to_lowercase(),
    };
    names.map(|name| (name.clone(), class(&name))).collect()
}

#[test]
fn every_status_has_a_class_that_is_thrown_and_documented() {
    let Some(cpp) = cpp() else { return };
    let statuses = statuses_and_classes();
    assert!(statuses.len() >= 38, "{statuses:?}");
    let mut text = String::from("#include <evermap.hpp>\n#include <iostream>\n");
    text += "template <class E> bool throws(em_status status) {\n  try {\n";
    text += "    evermap::detail::raise(status, \"what happened\");\n";
    text += "  } catch (const E& thrown) {\n    return thrown.status() == status &&\n";
    text += "      std::string(thrown.what()) == \"what happened\";\n";
    text += "  } catch (...) {\n    return false;\n  }\n}\n";
    text += "int main() {\n";
    for (status, class) in &statuses {
        text += &format!("  if (!throws<evermap::{class}>({status})) std::cout << \"{class} \";\n");
    }
    // A status that a later library may have.
    text += "  const auto later = static_cast<em_status>(77);\n";
    text += "  if (!throws<evermap::error>(later)) std::cout << \"error\";\n}\n";
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("classes.cpp");
    std::fs::write(&program, text).unwrap();
    let program = compile(cpp, &program, directory.path(), Link::Shared, &["-std=c++17"]);
    assert_eq!(run::<&str>(&program, &[]), "", "statuses without a class of their own");
    let page = std::fs::read_to_string(here().join("../../docs/cpp.md")).unwrap();
    for (_, class) in &statuses {
        assert!(page.contains(&format!("`{class}`")), "docs/cpp.md lacks `{class}`");
    }
}

/// Compiles one of the programs of docs/cpp.md, numbered from 1.
fn documented(cpp: &str, number: usize, directory: &Path) -> PathBuf {
    let page = std::fs::read_to_string(here().join("../../docs/cpp.md")).unwrap();
    let program = page.split("```cpp\n").nth(number).and_then(|rest| rest.split("```").next());
    let source = directory.join("documented.cpp");
    std::fs::write(&source, program.unwrap()).unwrap();
    compile(cpp, &source, directory, Link::Shared, &["-std=c++17"])
}

#[test]
fn the_program_about_images_counts_lines_and_leaves_the_file_alone() {
    let Some(cpp) = cpp() else { return };
    let directory = tempfile::tempdir().unwrap();
    let program = documented(cpp, 2, directory.path());
    let (text, file) = ("a line\n".repeat(100_000), directory.path().join("text"));
    std::fs::write(&file, &text).unwrap();
    assert_eq!(run(&program, &[&file]), "100000 lines\n");
    assert!(std::fs::read_to_string(&file).unwrap() == text);
}

#[test]
fn the_program_in_the_documentation_counts_its_runs() {
    let Some(cpp) = cpp() else { return };
    let directory = tempfile::tempdir().unwrap();
    let program = documented(cpp, 1, directory.path());
    let store = directory.path().join("store");
    assert_eq!(run(&program, &[&store]), "Lovelace, Augusta Ada: 1\n");
    assert_eq!(run(&program, &[&store]), "Lovelace, Augusta Ada: 2\n");
}

#[test]
fn a_word_index_is_kept_between_runs() {
    let Some(cpp) = cpp() else { return };
    let directory = tempfile::tempdir().unwrap();
    let flags = ["-std=c++17", "-O2"];
    let index = compile(cpp, &example("word_index.cpp"), directory.path(), Link::Shared, &flags);
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let (store, one, two) = (at("store"), at("one.txt"), at("two.txt"));
    std::fs::write(&one, "A rose is a rose.\nIncomprehensibilities follow.\n").unwrap();
    std::fs::write(&two, "Is it a rose?\n").unwrap();
    run(&index, &[&store, "add", &one]);
    let found = run(&index, &[&store, "find", "rose", "incomprehensibilities", "thorn"]);
    assert_eq!(found, "rose: 1\nincomprehensibilities: 2\nthorn: not there\n");
    run(&index, &[&store, "add", &two]);
    assert_eq!(run(&index, &[&store, "find", "rose"]), "rose: 1 3\n");
    assert_eq!(run(&index, &[&store, "top", "3"]), "a 2\nis 2\nrose 2\n");
    run(&index, &[&store, "add", &one]);
    assert_eq!(run(&index, &[&store, "find", "rose"]), "rose: 1 3 4\n");
}

#[test]
fn a_map_that_is_opened_again_finds_what_a_rebuilt_one_finds() {
    let Some(cpp) = cpp() else { return };
    let directory = tempfile::tempdir().unwrap();
    let flags = ["-std=c++17", "-O2"];
    let program = compile(cpp, &example("map_reopen.cpp"), directory.path(), Link::Shared, &flags);
    let store = directory.path().join("store").to_str().unwrap().to_string();
    let sum = |text: String| text.trim().rsplit(' ').next().unwrap().to_string();
    run(&program, &[&store, "build", "20000"]);
    let kept = sum(run(&program, &[&store, "reopen", "1000"]));
    assert_eq!(kept, sum(run(&program, &[&store, "rebuild", "20000", "1000"])));
    assert_ne!(kept, "0");
    // Building again frees the old entries.
    run(&program, &[&store, "build", "300"]);
    let rebuilt = sum(run(&program, &[&store, "rebuild", "300", "10"]));
    assert_eq!(sum(run(&program, &[&store, "reopen", "10"])), rebuilt);
}

/// The structs of `journal.h`.
mod journal {
    use std::ffi::{CStr, c_char};
    use std::ptr::{self, NonNull};

    pub const TAG: [u8; 16] = *b"example journal\0";

    #[repr(C)]
    pub struct Entry {
        pub next: *mut Entry,
        pub number: u64,
        pub text: *mut c_char,
    }

    #[repr(C)]
    pub struct Journal {
        pub first: *mut Entry,
        pub last: *mut Entry,
        pub entries: u64,
    }

    fn block<T>(session: &evermap_core::RawSession, value: T) -> NonNull<T> {
        let block = session.heap().allocate(size_of::<T>(), align_of::<T>()).unwrap().cast::<T>();
        // SAFETY: the block was allocated for one `T`.
        unsafe { block.write(value) };
        block
    }

    /// Makes a journal with these entries the object's root.
    pub fn write(session: &mut evermap_core::RawSession, texts: &[&CStr]) {
        let (mut first, mut last) = (ptr::null_mut::<Entry>(), ptr::null_mut::<Entry>());
        for (number, text) in texts.iter().enumerate() {
            let bytes = text.to_bytes_with_nul();
            let copy = session.heap().allocate(bytes.len(), 1).unwrap();
            // SAFETY: the block was allocated for that many bytes.
            unsafe { copy.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            let text = copy.as_ptr().cast();
            let entry = Entry { next: ptr::null_mut(), number: number as u64 + 1, text };
            let entry = block(session, entry).as_ptr();
            match last.is_null() {
                true => first = entry,
                // SAFETY: an entry that was created before.
                false => unsafe { (*last).next = entry },
            }
            last = entry;
        }
        let journal = Journal { first, last, entries: texts.len() as u64 };
        let root = block(session, journal).cast();
        // SAFETY: the tag does not belong to a Rust type.
        unsafe { session.set_root(Some(root), size_of::<Journal>() as u64, TAG, "journal.h") }
            .unwrap();
    }

    /// Returns all entries of the journal in a snapshot.
    pub fn read(snapshot: &evermap_core::RawSnapshot) -> Vec<(u64, String)> {
        let root = snapshot.root();
        assert_eq!((root.tag, root.bytes), (TAG, size_of::<Journal>() as u64));
        let mut found = Vec::new();
        // SAFETY: the tag says that it is a journal, and the snapshot lives.
        let journal = unsafe { &*root.address.cast::<Journal>() };
        let mut next = journal.first;
        while !next.is_null() {
            assert!(snapshot.contains(next as usize, size_of::<Entry>()));
            // SAFETY: an entry of the journal; its text ends with a zero byte.
            let (entry, text) = unsafe { (&*next, CStr::from_ptr((*next).text)) };
            found.push((entry.number, text.to_str().unwrap().to_string()));
            next = entry.next;
        }
        assert_eq!(found.len() as u64, journal.entries);
        found
    }
}

#[test]
fn the_tutorial_on_a_first_object_in_cpp_works() {
    if cpp().is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let flags = staged::pkg_config(directory.path());
    let page = walkthrough::tutorial("first-object-cpp.md");
    walkthrough::follow(&page, directory.path(), &[("pkg-config", &flags)]);
}

#[test]
fn rust_writes_an_object_that_cpp_reads_and_c_appends_to() {
    let (Some(cpp), Some(c)) = (cpp(), compiler("cc")) else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = evermap_core::Store::create_new(&path).unwrap();
    store.create_raw("journal").unwrap();
    let mut session = store.write_raw("journal").unwrap();
    journal::write(&mut session, &[c"written in Rust", c"a second entry"]);
    session.commit().unwrap();
    session.close().unwrap();

    let flags = ["-std=c++17", "-O2"];
    let reader = compile(cpp, &source("rust_objects.cpp"), directory.path(), Link::Shared, &flags);
    let verb = Path::new("journal");
    let printed = run(&reader, &[&path, verb]);
    assert_eq!(printed, "2 entries\n1 written in Rust\n2 a second entry\n");

    let flags = ["-std=c99", "-O1", "-fsanitize=address,undefined"];
    let appender = compile(c, &source("journal_append.c"), directory.path(), Link::Static, &flags);
    run(&appender, &[path.to_str().unwrap(), "appended in C", "and another"]);

    let texts = ["written in Rust", "a second entry", "appended in C", "and another"];
    let expected: Vec<_> = (1..).zip(texts.map(String::from)).collect();
    assert_eq!(journal::read(&store.read_raw("journal").unwrap()), expected);
    let printed = run(&reader, &[&path, verb]);
    assert_eq!(printed.lines().last(), Some("4 and another"));
}

mod library {
    use evermap_core::{PBox, PMap, PString, PVec, Persist};

    #[derive(Persist)]
    #[persist(crate = "evermap_core")]
    #[repr(C)]
    pub struct Book {
        pub title: PString,
        pub year: u32,
        pub authors: PVec<PString>,
    }

    #[derive(Persist)]
    #[persist(crate = "evermap_core")]
    #[repr(C)]
    pub struct Library {
        pub books: PVec<Book>,
        pub shelves: PMap<PString, u64>,
        pub newest: Option<PBox<Book>>,
        pub lost: Option<PBox<Book>>,
    }

    impl Book {
        fn dated(year: u32) -> Book {
            Book { title: PString::new(), year, authors: PVec::new() }
        }
    }

    impl Library {
        pub fn empty() -> Library {
            Library { books: PVec::new(), shelves: PMap::new(), newest: None, lost: None }
        }
    }

    fn fill(mut book: evermap_core::Mut<'_, Book>, title: &str, authors: &[&str]) {
        let fields = book.fields();
        let (mut book_title, mut book_authors) = (fields.title, fields.authors);
        book_title.assign(title).unwrap();
        for author in authors {
            book_authors.push(*author).unwrap();
        }
    }

    pub fn fill_library(mut library: evermap_core::Mut<'_, Library>) {
        let fields = library.fields();
        let (mut books, mut shelves, mut newest) = (fields.books, fields.shelves, fields.newest);
        for (title, year, authors) in [
            ("Sets", 1914, &["Hausdorff"][..]),
            ("C", 1978, &["Kernighan", "Ritchie"]),
            // 23 and 24 bytes: the longest text in a string's own bytes, and the shortest in a
            // block.
            ("Topology and measure, 1", 2, &["Topology and measure, 24"]),
            ("", 0, &[]),
        ] {
            books.push(Book::dated(year)).unwrap();
            let last = books.len() - 1;
            fill(books.get_mut(last).unwrap(), title, authors);
        }
        for (name, number) in [("logic", 1), ("to be removed", 2), ("größe", 3)] {
            shelves.insert(name, number).unwrap();
        }
        shelves.remove("to be removed");
        newest.insert(Book::dated(1999)).unwrap();
        // A text that became short stays in its block.
        fill(newest.as_mut().unwrap(), "A title that needs a block", &[]);
        fill(newest.as_mut().unwrap(), "Last", &[]);
    }
}

#[test]
fn cpp_reads_the_containers_of_a_typed_object() {
    let Some(cpp) = cpp() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = evermap_core::Store::create_new(&path).unwrap();
    store.create::<library::Library, _>("library", library::Library::empty()).unwrap();
    let mut session = store.write::<library::Library>("library").unwrap();
    library::fill_library(session.root_mut());
    session.commit().unwrap();
    session.close().unwrap();
    let flags = ["-std=c++17", "-O2"];
    let reader = compile(cpp, &source("rust_objects.cpp"), directory.path(), Link::Shared, &flags);
    let printed = run(&reader, &[&path, Path::new("library")]);
    let expected = "Sets 1914, Hausdorff\nC 1978, Kernighan, Ritchie\n\
                    Topology and measure, 1 2, Topology and measure, 24\n 0\n\
                    2 shelves\nlogic 1\ngröße 3\nLast 1999\n";
    assert_eq!(printed, expected);
}
