//! The plain way to send a file, as a program: reads 64 KiB, writes them to a socket, and so on.
//!
//! `read-send FILE ADDRESS`, where an address is `HOST:PORT` or `unix:PATH`.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

const BLOCK_BYTES: usize = 64 << 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, address] = &arguments[..] else {
        eprintln!("read-send FILE ADDRESS");
        return ExitCode::FAILURE;
    };
    match send(file, address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("read-send: {error}");
            ExitCode::FAILURE
        }
    }
}

fn send(file: &str, address: &str) -> std::io::Result<()> {
    let mut file = File::open(file)?;
    let mut socket: Box<dyn Write> = match address.strip_prefix("unix:") {
        Some(path) => Box::new(UnixStream::connect(path)?),
        None => Box::new(TcpStream::connect(address)?),
    };
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(()),
            filled => socket.write_all(&block[..filled])?,
        }
    }
}
