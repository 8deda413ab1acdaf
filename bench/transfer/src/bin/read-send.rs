//! Sends a file the plain way: reads 64 KiB, writes them to a socket, and repeats.
//!
//! Usage: `read-send [--congestion NAME] FILE ADDRESS`; an address is `HOST:PORT` or `unix:PATH`.
//! The name is a TCP congestion control; without it, the system's default applies.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

const BLOCK_BYTES: usize = 64 << 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (congestion, file, address) = match words[..] {
        ["--congestion", name, file, address] => (Some(name), file, address),
        [file, address] => (None, file, address),
        _ => {
            eprintln!("read-send [--congestion NAME] FILE ADDRESS");
            return ExitCode::FAILURE;
        }
    };
    match send(file, address, congestion) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("read-send: {error}");
            ExitCode::FAILURE
        }
    }
}

fn send(file: &str, address: &str, congestion: Option<&str>) -> std::io::Result<()> {
    let mut file = File::open(file)?;
    let mut socket: Box<dyn Write> = match address.strip_prefix("unix:") {
        Some(path) => Box::new(UnixStream::connect(path)?),
        None => {
            let stream = TcpStream::connect(address)?;
            if let Some(name) = congestion {
                rustix::net::sockopt::set_tcp_congestion(&stream, name)?;
            }
            Box::new(stream)
        }
    };
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(()),
            filled => socket.write_all(&block[..filled])?,
        }
    }
}
