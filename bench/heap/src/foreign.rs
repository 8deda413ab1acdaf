//! Peers in other languages: small programs whose sources are included here and compiled at run
//! time. The report names missing ones with their Debian package.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use harness::Outcome;

/// Compiled programs; `None` for those that are not available.
#[derive(Default)]
pub struct Programs {
    pub boost: Option<PathBuf>,
    pub pmdk: Option<PathBuf>,
}

const COMMON: &str = include_str!("../peers/common.hpp");

impl Programs {
    pub fn compile(folder: &Path) -> Outcome<Programs> {
        let boost = Source {
            name: "boost",
            text: include_str!("../peers/boost.cpp"),
            header: "boost/interprocess/managed_mapped_file.hpp",
            package: "libboost-dev",
            flags: &[],
        };
        let pmdk = Source {
            name: "pmdk",
            text: include_str!("../peers/pmdk.cpp"),
            header: "libpmemobj.h",
            package: "libpmemobj-dev",
            flags: &["-lpmemobj"],
        };
        Ok(Programs { boost: boost.compile(folder)?, pmdk: pmdk.compile(folder)? })
    }
}

/// Program in C++.
pub struct Source<'a> {
    pub name: &'a str,
    pub text: &'a str,
    /// Header that may be missing, and its package.
    pub header: &'a str,
    pub package: &'a str,
    /// Compiler flags after the source.
    pub flags: &'a [&'a str],
}

impl Source<'_> {
    /// Compiles the program with optimisation. Prints a line and returns `None` if its header is
    /// missing.
    pub fn compile(&self, folder: &Path) -> Outcome<Option<PathBuf>> {
        let probe = format!("#include <{}>\n", self.header);
        let mut check = compiler(self.flags);
        check.args(["-fsyntax-only", "-x", "c++", "-"]);
        if !feed(check, &probe)?.0 {
            println!(
                "**{} is not measured: no `{}` for the C++ compiler ({}).**\n",
                self.name, self.header, self.package
            );
            return Ok(None);
        }
        std::fs::write(folder.join("common.hpp"), COMMON)?;
        let program = folder.join(self.name);
        let source = program.with_extension("cpp");
        std::fs::write(&source, self.text)?;
        let mut command = compiler(&[]);
        command.args(["-O3", "-DNDEBUG", "-o"]).args([&program, &source]).args(self.flags);
        match feed(command, "")? {
            (true, _) => Ok(Some(program)),
            (false, why) => Err(format!("cannot compile {}: {why}", self.name).into()),
        }
    }
}

fn compiler(flags: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    command.args(["-std=c++17", "-pthread"]);
    command.args(flags.iter().filter(|flag| flag.starts_with("-I")));
    command
}

/// Runs a command with a text as input. Returns whether it succeeded, and its error output. A
/// missing compiler counts as a failure.
fn feed(mut command: Command, text: &str) -> Outcome<(bool, String)> {
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok((false, "no C++ compiler was found (g++)".to_string()));
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(mut pipe) = child.stdin.take() {
        // A compiler that does not read its input reports the reason itself.
        let _ = pipe.write_all(text.as_bytes());
    }
    let output = child.wait_with_output()?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}
