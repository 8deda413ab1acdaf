//! Tests of the files that `make install` installs, and of builds by pkg-config and CMake.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::staged::{Place, here, run, staged};

/// A prefix that does not exist on any machine, so that nothing is found there by chance.
const PREFIX: &str = "/opt/evermap-test";

struct Installed {
    place: Place,
}

impl Installed {
    fn new() -> Installed {
        let installed = Installed { place: Place::new() };
        let library = staged().join("lib/libevermap.a");
        run(installed.script().arg("install").arg(library));
        installed
    }

    fn script(&self) -> Command {
        let mut script = Command::new(here().join("install.sh"));
        script.env("DESTDIR", self.root()).env("PREFIX", PREFIX).env_remove("LIBDIR");
        script
    }

    fn root(&self) -> PathBuf {
        self.place.path().join("root")
    }

    fn prefix(&self) -> PathBuf {
        self.root().join(&PREFIX[1..])
    }

    /// Runs a program twice and checks its output.
    fn works(&self, program: &Path) {
        let mut first = self.place.command(program);
        first.env("LD_LIBRARY_PATH", self.prefix().join("lib"));
        assert_eq!(run(&mut first), "1 1\n");
        assert_eq!(run(&mut first), "2 2\n");
        fs::remove_dir_all(self.place.store()).unwrap();
    }
}

fn is_here(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: {tool} is not here, what needs it was not tested");
    }
    found
}

fn files(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.is_dir() {
            true => found.extend(files(&entry)),
            false => found.push(entry.display().to_string()),
        }
    }
    found.sort();
    found
}

#[test]
fn uninstalling_leaves_no_file() {
    let installed = Installed::new();
    let found = files(&installed.root()).join("\n");
    for expected in [
        "lib/libevermap.so.0.",
        "lib/libevermap.so.0\n",
        "lib/libevermap.so\n",
        "lib/libevermap.a",
        "include/evermap.h",
        "include/evermap_transfer.h",
        "include/evermap_load.h",
        "include/fastio.h",
        "include/nvheap.h",
        "include/evermap.hpp",
        "include/evermap/allocator.hpp",
        "include/evermap/transfer.hpp",
        "include/evermap/load.hpp",
        "lib/pkgconfig/evermap.pc",
        "lib/cmake/evermap/evermapConfig.cmake",
        "lib/cmake/evermap/evermapConfigVersion.cmake",
    ] {
        assert!(found.contains(&format!("{PREFIX}/{expected}")), "{expected} in\n{found}");
    }
    for file in files(&installed.prefix()).iter().filter(|f| f.ends_with(".pc")) {
        let text = fs::read_to_string(file).unwrap();
        let root = installed.root().display().to_string();
        assert!(!text.contains('@') && !text.contains(&root), "{text}");
    }
    run(installed.script().arg("uninstall"));
    assert_eq!(files(&installed.root()), Vec::<String>::new());
}

#[test]
fn programs_build_with_pkg_config_shared_and_static() {
    if !is_here("pkg-config") {
        return;
    }
    let installed = Installed::new();
    let flags = |arguments: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_SYSROOT_DIR", installed.root());
        command.env("PKG_CONFIG_PATH", installed.prefix().join("lib/pkgconfig"));
        run(command.args(arguments).arg("evermap"))
    };
    assert_eq!(flags(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    let (program, source) = (installed.place.path().join("runs"), here().join("tests/c/runs.c"));
    let build = |flags: &str| {
        let mut compiler = Command::new("cc");
        compiler.arg(&source).arg("-o").arg(&program).args(flags.split_whitespace());
        run(&mut compiler);
        installed.works(&program);
    };
    build(&flags(&["--cflags", "--libs"]));
    // The linker chooses which library `-levermap` means.
    let all = flags(&["--static", "--cflags", "--libs"]);
    build(&all.replace("-levermap", "-l:libevermap.a"));
}

#[test]
fn programs_find_the_library_in_a_prefix_that_the_linker_does_not_know() {
    if !is_here("pkg-config") {
        return;
    }
    let place = Place::new();
    let prefix = place.path().join("a-prefix");
    let mut script = Command::new(here().join("install.sh"));
    script.env("PREFIX", &prefix).env_remove("DESTDIR").env_remove("LIBDIR");
    run(script.arg("install").arg(staged().join("lib/libevermap.a")));
    let mut flags = Command::new("pkg-config");
    flags.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let flags = run(flags.args(["--cflags", "--libs", "evermap"]));
    let program = place.path().join("runs");
    let mut compiler = Command::new("cc");
    compiler.arg(here().join("tests/c/runs.c")).arg("-o").arg(&program);
    run(compiler.args(flags.split_whitespace()));
    assert_eq!(run(&mut place.command(&program)), "1 1\n");
}

#[test]
fn programs_build_with_cmake_shared_and_static() {
    if !is_here("cmake") {
        return;
    }
    let installed = Installed::new();
    let project = installed.place.path().join("project");
    fs::create_dir(&project).unwrap();
    let source = here().join("tests/c/runs.c");
    let configure = |version: &str| {
        let text = format!(
            "cmake_minimum_required(VERSION 3.16)\nproject(runs C)\n\
             find_package(evermap {version} REQUIRED)\n\
             add_executable(shared {0})\ntarget_link_libraries(shared PRIVATE evermap::evermap)\n\
             add_executable(static {0})\ntarget_link_libraries(static PRIVATE evermap::static)\n",
            source.display()
        );
        fs::write(project.join("CMakeLists.txt"), text).unwrap();
        let mut cmake = Command::new("cmake");
        cmake.arg("-S").arg(&project).arg("-B").arg(project.join(format!("build-{version}")));
        cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", installed.prefix().display()));
        cmake
    };
    run(&mut configure("0.1"));
    let build = project.join("build-0.1");
    run(Command::new("cmake").arg("--build").arg(&build));
    installed.works(&build.join("shared"));
    installed.works(&build.join("static"));
    let refused = configure("7.0").output().unwrap();
    assert!(!refused.status.success(), "a version that is not there was found");
}
