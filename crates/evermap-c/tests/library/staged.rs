//! Lays out this build of the library like `make install`, and compiles programs against it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::SystemTime;

/// The crate's directory.
pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command that must succeed, and returns its standard output.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}\n{}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Describes the exit status and all output of a command.
pub fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}\n{}{}", output.status, String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

fn changed(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

/// Returns the static library of this build. Cargo creates none for tests, so it is built here;
/// that takes a moment if nothing has changed.
fn built() -> PathBuf {
    // target/PROFILE/deps/this-test
    let program = std::env::current_exe().unwrap();
    let directory = program.parent().and_then(Path::parent).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked", "--package", "evermap-c", "--manifest-path"]);
    cargo.arg(here().join("Cargo.toml"));
    cargo.arg("--target-dir").arg(directory.parent().unwrap());
    match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") => &mut cargo,
        other => cargo.arg("--profile").arg(other.unwrap()),
    };
    run(&mut cargo);
    directory.join("libevermap.a")
}

/// Returns a directory with `lib` and `include`, like `make install`.
pub fn staged() -> &'static Path {
    static STAGED: OnceLock<PathBuf> = OnceLock::new();
    STAGED.get_or_init(|| {
        let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
        fs::create_dir_all(temporary).unwrap();
        // Other test programs may be creating it.
        let lock = File::create(temporary.join("evermap-c.lock")).unwrap();
        lock.lock().unwrap();
        let (library, stage) = (built(), temporary.join("evermap-c"));
        let stamp = stage.join("stamp");
        let files = |directory: &str| fs::read_dir(here().join(directory)).unwrap();
        let headers = files("include").chain(files("include/evermap")).map(|f| f.unwrap().path());
        let sources = headers.chain(["evermap.map", "link.sh"].map(|s| here().join(s)));
        let newest = sources.chain([library.clone()]).map(|s| changed(&s)).max().unwrap();
        if !stamp.exists() || changed(&stamp) < newest {
            run(Command::new(here().join("link.sh")).arg(&library).arg(&stage));
            File::create(&stamp).unwrap();
        }
        stage
    })
}

/// Kind of linking for a program.
#[derive(Clone, Copy, PartialEq)]
pub enum Link {
    Shared,
    Static,
}

/// Makes a program that prints the flags of this build. It stands in for `pkg-config`, which prints
/// the flags of an installed library.
pub fn pkg_config(directory: &Path) -> PathBuf {
    let (include, lib) = (staged().join("include"), staged().join("lib"));
    let (include, lib) = (include.display(), lib.display());
    let program = directory.join("flags");
    let script = format!("#!/bin/sh\necho -I{include} -L{lib} -Wl,-rpath,{lib} -levermap\n");
    let write = "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\"";
    // Another process writes it, so that no child of another test holds it open for writing.
    run(Command::new("sh").args(["-c", write]).arg(&program).arg(script));
    program
}

/// Warnings with which every test program must compile.
pub const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// Returns the source files of a program of `tests/c`: one file, or those of a folder.
pub fn sources_of(name: &str) -> Vec<PathBuf> {
    let path = here().join("tests/c").join(name);
    if !path.is_dir() {
        return vec![path.with_extension("c")];
    }
    let files = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|extension| extension == "c")).collect()
}

/// Compiles a program of `tests/c` into a directory.
pub fn compile(name: &str, into: &Path, link: Link, flags: &[&str]) -> PathBuf {
    let flags = [&["-std=c99"], flags].concat();
    compile_all("cc", &sources_of(name), into.join(name), link, &flags)
}

/// Compiles a program with a compiler of its language.
pub fn compile_all(
    compiler: &str,
    sources: &[PathBuf],
    program: PathBuf,
    link: Link,
    flags: &[&str],
) -> PathBuf {
    let mut compiler = Command::new(compiler);
    compiler.args(WARNINGS).args(["-g", "-I"]).arg(staged().join("include"));
    compiler.args(flags).args(sources).arg("-o").arg(&program);
    let libraries = staged().join("lib");
    match link {
        Link::Shared => {
            compiler.arg("-L").arg(&libraries).arg("-levermap");
            compiler.arg(format!("-Wl,-rpath,{}", libraries.display())).arg("-pthread");
        }
        Link::Static => {
            compiler.arg(libraries.join("libevermap.a")).args(["-lm", "-ldl", "-pthread"]);
        }
    }
    run(&mut compiler);
    program
}

/// A directory for a test, with the paths that its programs get.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn store(&self) -> PathBuf {
        self.path().join("store")
    }

    /// Returns a command with this place's store in its environment.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("EVERMAP_STORE", self.store()).env("XDG_STATE_HOME", self.path());
        // Cargo adds its own directories to the library search path.
        for variable in ["EVERMAP_APPLICATION", "EVERMAP_RESERVE", "LD_LIBRARY_PATH"] {
            command.env_remove(variable);
        }
        command
    }
}
