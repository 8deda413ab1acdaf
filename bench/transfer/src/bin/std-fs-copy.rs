//! Copies a file with the standard library: `std-fs-copy SOURCE DESTINATION`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    let [source, destination] = &arguments[..] else {
        eprintln!("std-fs-copy SOURCE DESTINATION");
        return ExitCode::FAILURE;
    };
    match std::fs::copy(source, destination) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("std-fs-copy: {error}");
            ExitCode::FAILURE
        }
    }
}
