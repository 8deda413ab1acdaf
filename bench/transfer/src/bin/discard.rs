//! Receives from a socket and discards the bytes, or writes them to a file, at the least possible
//! cost.
//!
//! - `discard ADDRESS`: accepts one connection. Prints `ready ADDRESS` when it listens.
//! - `discard --into FILE ADDRESS`: accepts one connection, and writes the bytes to a file.
//! - `discard --get PATH HOST:PORT`: requests this file from a web server.
//! - `discard --waking BYTES ..`: over TCP, sleeps until this many bytes have arrived, instead of
//!   waking for each segment.
//!
//! An address is `HOST:PORT` (port 0 for any free port) or `unix:PATH`. At the end the program
//! prints the number of bytes and the time from the connection to its end:
//! `{"bytes":..,"connected_ns":..}`.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::time::Instant;

use rustix::net::{RecvFlags, recv};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const PIPE_BYTES: usize = 1 << 20;
const BLOCK_BYTES: usize = 256 << 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match take(&words) {
        Ok((bytes, start)) => {
            let connected_ns = start.elapsed().as_nanos();
            println!("{{\"bytes\":{bytes},\"connected_ns\":{connected_ns}}}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("discard: {error}");
            ExitCode::FAILURE
        }
    }
}

fn take(words: &[&str]) -> Outcome<(u64, Instant)> {
    let (waking_bytes, words) = match words {
        ["--waking", bytes, rest @ ..] => (Some(bytes.parse()?), rest),
        _ => (None, words),
    };
    match words {
        ["--get", path, address] => get(path, address, waking_bytes),
        ["--into", file, address] => serve(address, Some(file), waking_bytes),
        [address] => serve(address, None, waking_bytes),
        _ => Err("discard [--waking BYTES] [--into FILE | --get PATH] ADDRESS".into()),
    }
}

fn serve(address: &str, into: Option<&str>, waking_bytes: Option<i32>) -> Outcome<(u64, Instant)> {
    let into = into.map(File::create).transpose()?;
    if let Some(path) = address.strip_prefix("unix:") {
        let listener = UnixListener::bind(path)?;
        println!("ready {address}");
        let (socket, _) = listener.accept()?;
        let start = Instant::now();
        return Ok((take_unix(socket, into)?, start));
    }
    let listener = TcpListener::bind(address)?;
    println!("ready {}", listener.local_addr()?);
    let (socket, _) = listener.accept()?;
    let start = Instant::now();
    wake_after(&socket, waking_bytes)?;
    Ok((take_tcp(socket, into)?, start))
}

fn get(path: &str, address: &str, waking_bytes: Option<i32>) -> Outcome<(u64, Instant)> {
    let start = Instant::now();
    let mut socket = TcpStream::connect(address)?;
    write!(socket, "GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut head = Vec::new();
    // Reads single bytes, so that no byte of the body is consumed.
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    if !head.starts_with(b"HTTP/1.1 200") {
        return Err(String::from_utf8_lossy(&head).into_owned().into());
    }
    wake_after(&socket, waking_bytes)?;
    Ok((take_tcp(socket, None)?, start))
}

fn wake_after(socket: &TcpStream, bytes: Option<i32>) -> Outcome {
    let Some(bytes) = bytes else { return Ok(()) };
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the option is one int, which lives during the call.
    let result = unsafe {
        let value = (&raw const bytes).cast();
        let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVLOWAT);
        libc::setsockopt(socket.as_raw_fd(), level, name, value, length)
    };
    match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().into()),
    }
}

/// Discards TCP data in the kernel (`MSG_TRUNC`), or writes it to a file.
fn take_tcp(socket: TcpStream, into: Option<File>) -> Outcome<u64> {
    if let Some(file) = into {
        return write_down(socket, file);
    }
    let mut bytes = 0;
    let mut block = vec![0; PIPE_BYTES];
    loop {
        match recv(&socket, &mut block[..], RecvFlags::TRUNC) {
            Ok((_, 0)) => return Ok(bytes),
            Ok((_, taken)) => bytes += taken as u64,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Discards other data by moving its pages to `/dev/null`, or writes it to a file.
fn take_unix(socket: UnixStream, into: Option<File>) -> Outcome<u64> {
    if let Some(file) = into {
        return write_down(socket, file);
    }
    let nowhere = File::options().write(true).open("/dev/null")?;
    let (output, input) = pipe_with(PipeFlags::CLOEXEC)?;
    // A smaller pipe works as well.
    let _ = fcntl_setpipe_size(&input, PIPE_BYTES);
    let mut bytes = 0;
    loop {
        let taken = splice(socket.as_fd(), None, &input, None, PIPE_BYTES, SpliceFlags::empty())?;
        if taken == 0 {
            return Ok(bytes);
        }
        bytes += taken as u64;
        let mut left = taken;
        while left > 0 {
            left -= splice(&output, None, &nowhere, None, left, SpliceFlags::empty())?;
        }
    }
}

fn write_down(mut socket: impl Read, mut file: File) -> Outcome<u64> {
    let mut bytes = 0;
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let filled = socket.read(&mut block)?;
        if filled == 0 {
            return Ok(bytes);
        }
        file.write_all(&block[..filled])?;
        bytes += filled as u64;
    }
}
