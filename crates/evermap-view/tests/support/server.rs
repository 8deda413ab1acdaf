//! A loopback server for tests. A closure computes its replies, and a log records its requests.
//! Replies can be slow, missing or invalid. Needs only the standard library and `url`.
//!
//! ```ignore
//! #[path = "support/server.rs"]
//! mod server;
//! use server::{Reply, Server};
//!
//! let server = Server::start(|request| match request.path() {
//!     "/" => Reply::html("<p>Hello").header("Cache-Control", "max-age=60"),
//!     "/old" => Reply::redirect(302, "/"),
//!     "/silent" => Reply::never(),
//!     _ => Reply::status(404),
//! });
//! let url = server.url("/");
//! // ... fetch it ...
//! assert_eq!(server.count("/"), 1);
//! ```
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use url::Url;

/// A received request.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// Path and query, as they were sent.
    pub target: String,
    /// Headers in order of arrival, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// Number of the connection, counted from 0.
    pub connection: usize,
}

impl Request {
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Returns true if the request asks whether this entity tag is still valid.
    pub fn knows(&self, etag: &str) -> bool {
        self.header("if-none-match").is_some_and(|known| known.contains(etag))
    }
}

/// Encoding of a body's end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length,
    Chunked,
    UntilClose,
}

/// A reply of the server.
#[derive(Clone)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    framing: Framing,
    delay: Duration,
    pause: Option<(usize, Duration)>,
    cut_at: Option<usize>,
    raw: Option<Vec<u8>>,
    never: bool,
    repeat: usize,
}

impl Reply {
    pub fn status(status: u16) -> Reply {
        Reply {
            status,
            headers: Vec::new(),
            body: Vec::new(),
            framing: Framing::Length,
            delay: Duration::ZERO,
            pause: None,
            cut_at: None,
            raw: None,
            never: false,
            repeat: 1,
        }
    }

    pub fn ok(content_type: &str, body: impl Into<Vec<u8>>) -> Reply {
        Reply::status(200).header("Content-Type", content_type).body(body)
    }

    pub fn html(body: &str) -> Reply {
        Reply::ok("text/html; charset=utf-8", body)
    }

    pub fn redirect(status: u16, to: &str) -> Reply {
        Reply::status(status).header("Location", to)
    }

    pub fn not_modified() -> Reply {
        Reply::status(304)
    }

    /// Returns a reply that is never sent.
    pub fn never() -> Reply {
        Reply { never: true, ..Reply::status(200) }
    }

    /// Sends these bytes instead of HTTP, then closes the connection.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Reply {
        Reply { raw: Some(bytes.into()), ..Reply::status(200) }
    }

    pub fn header(mut self, name: &str, value: &str) -> Reply {
        self.headers.push((name.to_string(), value.to_string()));
        self
    }

    pub fn body(self, body: impl Into<Vec<u8>>) -> Reply {
        Reply { body: body.into(), ..self }
    }

    /// Sends the body this many times, without holding all of it in memory.
    pub fn repeated(self, times: usize) -> Reply {
        Reply { repeat: times, ..self }
    }

    /// Changes the status.
    pub fn status_is(self, status: u16) -> Reply {
        Reply { status, ..self }
    }

    /// Sends the body in chunks, without a length.
    pub fn chunked(self) -> Reply {
        Reply { framing: Framing::Chunked, ..self }
    }

    /// Sends the body without a length, and closes the connection at its end.
    pub fn until_close(self) -> Reply {
        Reply { framing: Framing::UntilClose, ..self }
    }

    /// Waits this long before sending anything.
    pub fn after(self, delay: Duration) -> Reply {
        Reply { delay, ..self }
    }

    /// Sends the body in steps of some bytes, with a pause before each.
    pub fn trickle(self, step_bytes: usize, pause: Duration) -> Reply {
        Reply { pause: Some((step_bytes, pause)), ..self }
    }

    /// Closes the connection after this many bytes of the body, although the full length is
    /// announced.
    pub fn cut_at(self, bytes: usize) -> Reply {
        Reply { cut_at: Some(bytes), ..self }
    }
}

/// A connection, encrypted or not.
pub trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

type Routes = dyn Fn(&Request) -> Reply + Send + Sync;
type Wrap = dyn Fn(TcpStream) -> Option<Box<dyn Stream>> + Send + Sync;

#[derive(Default)]
struct State {
    log: Vec<Request>,
    open: Vec<TcpStream>,
    connections: usize,
    stopped: bool,
}

struct Shared {
    state: Mutex<State>,
    stopping: Condvar,
    routes: Box<Routes>,
    wrap: Box<Wrap>,
}

/// A server that runs until it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    scheme: &'static str,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server that replies as the closure says.
    pub fn start(routes: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Server {
        Server::start_wrapped("http", |stream| Some(Box::new(stream)), routes)
    }

    /// Like `start`, but passes each connection through `wrap` first, for TLS.
    pub fn start_wrapped(
        scheme: &'static str,
        wrap: impl Fn(TcpStream) -> Option<Box<dyn Stream>> + Send + Sync + 'static,
        routes: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            stopping: Condvar::new(),
            routes: Box::new(routes),
            wrap: Box::new(wrap),
        });
        let serving = Arc::clone(&shared);
        let accepting = std::thread::spawn(move || accept(&listener, &serving));
        Server { shared, address, scheme, accepting: Some(accepting) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns an address of this server.
    pub fn url(&self, target: &str) -> Url {
        Url::parse(&format!("{}://{}{target}", self.scheme, self.address)).unwrap()
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.state.lock().unwrap().log.clone()
    }

    /// Returns the number of requests for a path.
    pub fn count(&self, path: &str) -> usize {
        self.requests().iter().filter(|request| request.path() == path).count()
    }

    /// Returns the number of connections.
    pub fn connections(&self) -> usize {
        self.shared.state.lock().unwrap().connections
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state.lock().unwrap();
            state.stopped = true;
            for stream in &state.open {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        self.shared.stopping.notify_all();
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else { return };
        // Head and body are two writes, which would be 40 ms apart without this option.
        let _ = stream.set_nodelay(true);
        let number = {
            let mut state = shared.state.lock().unwrap();
            if state.stopped {
                return;
            }
            state.open.push(stream.try_clone().unwrap());
            state.connections += 1;
            state.connections - 1
        };
        let serving = Arc::clone(shared);
        std::thread::spawn(move || {
            // Closes the connection even if the closure panics.
            let _closing = stream.try_clone().map(Closing);
            if let Some(wrapped) = (serving.wrap)(stream) {
                serve(wrapped, number, &serving);
            }
        });
    }
}

/// Closes a connection in both directions when it is dropped.
struct Closing(TcpStream);

impl Drop for Closing {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Answers requests on one connection until either side closes it.
fn serve(stream: Box<dyn Stream>, number: usize, shared: &Shared) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream, number) {
        shared.state.lock().unwrap().log.push(request.clone());
        // As a proxy, the server connects only to itself.
        if request.method == "CONNECT" {
            let connected = stream.get_mut().write_all(b"HTTP/1.1 200 Connected\r\n\r\n");
            match connected.and_then(|()| stream.get_mut().flush()) {
                Ok(()) => continue,
                Err(_) => return,
            }
        }
        let reply = (shared.routes)(&request);
        if answer(stream.get_mut(), &reply, shared).is_none() {
            return;
        }
    }
}

fn read_request(stream: &mut impl BufRead, connection: usize) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_string(), words.next()?.to_string());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => {
                headers.push((name.to_ascii_lowercase(), value.trim().to_string()));
            }
            None => break,
        }
    }
    Some(Request { method, target, headers, connection })
}

/// Waits, unless the server is stopped before.
fn wait(shared: &Shared, time: Option<Duration>) -> Option<()> {
    let state = shared.state.lock().unwrap();
    let stopped = match time {
        None => shared.stopping.wait_while(state, |state| !state.stopped).unwrap().stopped,
        Some(time) => {
            let waited = shared.stopping.wait_timeout_while(state, time, |state| !state.stopped);
            waited.unwrap().0.stopped
        }
    };
    (!stopped).then_some(())
}

/// Sends a reply. Returns `None` when the connection is closed.
fn answer(stream: &mut dyn Stream, reply: &Reply, shared: &Shared) -> Option<()> {
    if reply.never {
        return wait(shared, None);
    }
    if !reply.delay.is_zero() {
        wait(shared, Some(reply.delay))?;
    }
    if let Some(raw) = &reply.raw {
        stream.write_all(raw).ok()?;
        stream.flush().ok()?;
        return None;
    }
    stream.write_all(head(reply).as_bytes()).ok()?;
    if reply.status == 304 || reply.status == 204 {
        return stream.flush().ok();
    }
    for _ in 0..reply.repeat {
        let body = &reply.body[..reply.cut_at.unwrap_or(reply.body.len()).min(reply.body.len())];
        let step = reply.pause.map_or(body.len().max(1), |(bytes, _)| bytes);
        for piece in body.chunks(step) {
            if let Some((_, pause)) = reply.pause {
                wait(shared, Some(pause))?;
            }
            if reply.framing == Framing::Chunked {
                stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).ok()?;
            }
            stream.write_all(piece).ok()?;
            if reply.framing == Framing::Chunked {
                stream.write_all(b"\r\n").ok()?;
            }
            stream.flush().ok()?;
        }
    }
    if reply.framing == Framing::Chunked && reply.cut_at.is_none() {
        stream.write_all(b"0\r\n\r\n").ok()?;
    }
    stream.flush().ok()?;
    (reply.framing != Framing::UntilClose && reply.cut_at.is_none()).then_some(())
}

fn head(reply: &Reply) -> String {
    let mut head = format!("HTTP/1.1 {} Status\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match reply.framing {
        _ if reply.status == 304 || reply.status == 204 => {}
        Framing::Length => {
            head.push_str(&format!("Content-Length: {}\r\n", reply.body.len() * reply.repeat));
        }
        Framing::Chunked => head.push_str("Transfer-Encoding: chunked\r\n"),
        Framing::UntilClose => head.push_str("Connection: close\r\n"),
    }
    head + "\r\n"
}
