//! Builds an area of the benchmarks with the programs that it measures, and runs it.
//!
//! Each area is a package, so only its own peers are built. Many measured processes run the area's
//! program itself, which contains nothing of the other areas.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// An area, and what it needs besides its own package.
struct Area {
    name: &'static str,
    /// Description of the measurements, for the help text.
    about: &'static str,
    /// Profile of the optimised build.
    profile: &'static str,
    /// Packages and features of the `evermap` command, if the area measures it.
    command: &'static [&'static str],
    /// Optional programs, each with its package in Debian.
    tools: &'static [(&'static str, &'static str)],
    /// Builds or finds everything else, and sets the variables of the area's environment.
    prepare: fn(&Build, &mut Command) -> Outcome,
}

const FILE_SYSTEMS: [(&str, &str); 4] = [
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("mksquashfs", "squashfs-tools"),
    ("mkfs.erofs", "erofs-utils"),
];
const COMMAND: &[&str] = &["--package", "evermap-cli"];
const PLAIN: Area = Area {
    name: "",
    about: "",
    profile: "release",
    command: &[],
    tools: &[],
    prepare: |_, _| Ok(()),
};

const AREAS: [Area; 9] = [
    Area {
        name: "documents",
        about: "parsing, storing, opening and querying documents, compared with parsers",
        ..PLAIN
    },
    Area {
        name: "durability",
        about: "durable changes, compared with the disk, LMDB, redb, SQLite, PMDK",
        ..PLAIN
    },
    Area {
        name: "heap",
        about: "heaps, compared with allocators, persistent heaps, databases, files",
        prepare: c_library,
        ..PLAIN
    },
    Area {
        name: "cost",
        about: "instructions, system calls and flushes, here and at an earlier COMMIT",
        ..PLAIN
    },
    Area {
        name: "load",
        about: "ways to load a file, Evermap's and others",
        tools: &FILE_SYSTEMS,
        prepare: python,
        ..PLAIN
    },
    Area {
        name: "transfer",
        about: "copy, send and receive, compared with other copying programs",
        command: COMMAND,
        tools: &[
            ("perf", "linux-perf"),
            ("strace", "strace"),
            ("pv", "pv"),
            ("rsync", "rsync"),
            ("socat", "socat"),
            ("nginx", "nginx"),
            FILE_SYSTEMS[0],
            FILE_SYSTEMS[1],
            FILE_SYSTEMS[2],
            FILE_SYSTEMS[3],
        ],
        prepare: xcp,
        ..PLAIN
    },
    Area {
        name: "lane",
        about: "programs with deadlines under load, in lanes and without",
        command: COMMAND,
        tools: &[("stress-ng", "stress-ng"), ("ffmpeg", "ffmpeg")],
        ..PLAIN
    },
    Area {
        name: "sandbox",
        about: "workloads with files and with heaps, natively and as WebAssembly guests",
        profile: "sandbox",
        prepare: workloads,
        ..PLAIN
    },
    Area {
        name: "view",
        about: "the viewer, compared with other browsers",
        command: &[
            "--package",
            "evermap-cli",
            "--package",
            "evermap-view",
            "--features",
            "evermap-cli/view",
        ],
        tools: &[
            ("Xvfb", "xvfb"),
            ("dillo", "dillo"),
            ("netsurf-fb", "netsurf-fb"),
            ("chromium", "chromium"),
        ],
        ..PLAIN
    },
];
/// Areas of the library, which run if none is named.
const USUAL: [&str; 3] = ["documents", "durability", "heap"];

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let outcome = match arguments.next() {
        None => USUAL.into_iter().try_for_each(|name| run_area(name, Vec::new())),
        Some(help) if help == "-h" || help == "--help" => {
            println!("{}", help_text());
            Ok(())
        }
        Some(name) => run_area(&name.to_string_lossy(), arguments.collect()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn help_text() -> String {
    let areas = AREAS.iter().map(|area| format!("{:<11} {}\n", area.name, area.about));
    format!(
        "bench [AREA [SECTION ...] [OPTIONS]]\n\n{}\n\
         Without an area: {}. `bench AREA --help` lists sections and options.",
        areas.collect::<String>(),
        USUAL.join(", ")
    )
}

fn run_area(name: &str, arguments: Vec<OsString>) -> Outcome {
    let area = AREAS.iter().find(|area| area.name == name).ok_or_else(|| {
        let names = AREAS.iter().map(|area| area.name).collect::<Vec<_>>().join(", ");
        format!("unknown area `{name}`; choose from: {names}")
    })?;
    if area.name == "cost" {
        return run(Command::new(Path::new(HERE).join("cost/compare.sh")).args(arguments));
    }
    report_missing(area.tools);
    let build = Build::new(area.profile)?;
    build.cargo(HERE, &["--package", &format!("bench-{name}")])?;
    let mut command = Command::new(build.program(&format!("bench-{name}")));
    command.args(arguments);
    if !area.command.is_empty()
        && std::env::var_os("EVERMAP_COMMAND").is_none_or(|it| it.is_empty())
    {
        command.env("EVERMAP_COMMAND", build.evermap(area.command)?);
    }
    (area.prepare)(&build, &mut command)?;
    // An area that another may follow is a child. Any other replaces this process, so signals reach
    // it.
    match USUAL[..USUAL.len() - 1].contains(&name) {
        true => run(&mut command),
        false => Err(command.exec().into()),
    }
}

/// Runs a command, which must be successful.
fn run(command: &mut Command) -> Outcome {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{}: {status}", command.get_program().display()).into()),
    }
}

/// Builds programs, optimised if this program is, and knows where they are.
struct Build {
    profile: &'static str,
    /// Target folder of this workspace.
    target: PathBuf,
}

impl Build {
    fn new(optimised: &'static str) -> Outcome<Build> {
        let profile = if cfg!(debug_assertions) { "dev" } else { optimised };
        let program = std::env::current_exe()?;
        let target = program.ancestors().nth(2).ok_or("this program is in no target folder")?;
        Ok(Build { profile, target: target.to_path_buf() })
    }

    /// Runs `cargo build` in this folder.
    fn cargo(&self, folder: impl AsRef<Path>, arguments: &[&str]) -> Outcome {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        command.args(["build", "--locked", "--profile", self.profile]).args(arguments);
        run(command.current_dir(folder))
    }

    fn folder_of(&self, target: &Path) -> PathBuf {
        target.join(if self.profile == "dev" { "debug" } else { self.profile })
    }

    fn program(&self, name: &str) -> PathBuf {
        self.folder_of(&self.target).join(name)
    }

    /// Builds packages of the library's workspace. Returns the folder of its programs.
    fn library(&self, arguments: &[&str]) -> Outcome<PathBuf> {
        let root = Path::new(HERE).join("..").canonicalize()?;
        self.cargo(&root, arguments)?;
        // Both workspaces share a target folder, unless each uses its default.
        let target = match self.target == root.join("bench/target") {
            true => root.join("target"),
            false => self.target.clone(),
        };
        Ok(self.folder_of(&target))
    }

    fn evermap(&self, packages: &[&str]) -> Outcome<PathBuf> {
        Ok(self.library(packages)?.join("evermap"))
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.iter().any(|folder| folder.join(program).is_file())
}

fn report_missing(tools: &[(&str, &str)]) {
    let missing = tools.iter().filter(|(program, _)| !is_installed(program));
    let missing: BTreeSet<&str> = missing.map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        let missing = missing.into_iter().collect::<Vec<_>>().join(" ");
        eprintln!("Not installed, and skipped where it is needed: {missing}");
        eprintln!("For Debian: apt-get install --no-install-recommends {missing}");
    }
}

/// Builds the C and C++ library, which section `map` compiles against.
fn c_library(build: &Build, _: &mut Command) -> Outcome {
    let library = build.library(&["--package", "evermap-c"])?.join("libevermap.a");
    let link = Path::new(HERE).join("../crates/evermap-c/link.sh");
    run(Command::new(link).arg(library).arg(build.target.join("evermap-c")))
}

/// Installs the Python libraries.
fn python(_: &Build, area: &mut Command) -> Outcome {
    if std::env::var_os("EVERMAP_BENCH_PYTHON").is_some_and(|given| !given.is_empty()) {
        return Ok(());
    }
    let mut command = Command::new(Path::new(HERE).join("load/python.sh"));
    let output = command.stderr(Stdio::inherit()).output()?;
    let python = String::from_utf8(output.stdout)?;
    if !python.trim().is_empty() {
        area.env("EVERMAP_BENCH_PYTHON", python.trim());
    }
    Ok(())
}

/// Adds the folder of xcp to PATH, or prints how to install it: Debian has no package of it.
fn xcp(build: &Build, area: &mut Command) -> Outcome {
    let peers = build.target.join("peers");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([peers.join("bin")]);
    area.env("PATH", std::env::join_paths(folders)?);
    if !is_installed("xcp") && !peers.join("bin/xcp").is_file() {
        eprintln!("Not installed, and skipped: xcp. It comes with");
        eprintln!("    cargo install --locked --root {} xcp", peers.display());
    }
    Ok(())
}

/// Builds the workloads natively and as a guest.
fn workloads(build: &Build, area: &mut Command) -> Outcome {
    let profile = if build.profile == "dev" { "dev" } else { "release" };
    let workloads = Build { profile, target: build.target.clone() };
    workloads.cargo(HERE, &["--package", "workloads"])?;
    workloads.cargo(HERE, &["--package", "workloads", "--target", "wasm32-wasip1"])?;
    let guests = workloads.folder_of(&build.target.join("wasm32-wasip1"));
    area.env("EVERMAP_BENCH_WORKLOAD", workloads.program("workload"));
    area.env("EVERMAP_BENCH_MODULE", guests.join("workload.wasm"));
    if std::env::var_os("EVERMAP_BENCH_DIR").is_none() {
        // Data sets and compiled modules stay there for the next run.
        area.env("EVERMAP_BENCH_DIR", std::env::temp_dir().join("evermap-sandbox-bench"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_area_has_a_package_and_is_in_the_help() {
        for Area { name, .. } in AREAS {
            assert!(Path::new(HERE).join(name).join("Cargo.toml").is_file(), "{name}");
            assert!(help_text().contains(&format!("\n{name} ")), "{name}");
        }
        assert!(USUAL.iter().all(|usual| AREAS.iter().any(|area| area.name == *usual)));
    }

    #[test]
    fn an_unknown_area_is_refused_with_a_list_of_areas() {
        let error = run_area("heaps", Vec::new()).err().map(|error| error.to_string());
        let error = error.unwrap_or_default();
        assert!(
            error.contains("`heaps`") && error.contains("documents, durability, heap"),
            "{error}"
        );
    }

    #[test]
    fn programs_are_found_in_the_path() {
        assert!(is_installed("sh") && !is_installed("no-such-program"));
    }
}
