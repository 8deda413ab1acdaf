//! Helpers: a test directory, a receiver in a thread, and pairs of sockets.

use std::ffi::OsString;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use evermap_transfer::Error;
use evermap_transfer::net::{Address, Receive, ReceiveReport, Send, SendReport};

/// Timeout of tests: long enough for a busy machine, short enough for a test that hangs.
pub const SOON: Duration = Duration::from_secs(20);

pub type Received = Result<ReceiveReport, Error>;
pub type Sent = Result<SendReport, Error>;

/// A temporary directory with an inbox.
pub struct TestDir {
    directory: tempfile::TempDir,
}

impl TestDir {
    pub fn new() -> TestDir {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("inbox")).unwrap();
        TestDir { directory }
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn inbox(&self) -> PathBuf {
        self.path("inbox")
    }

    pub fn file(&self, name: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, contents).unwrap();
        path
    }

    /// Returns the names in the inbox, including temporary ones.
    pub fn received(&self) -> Vec<OsString> {
        let entries = std::fs::read_dir(self.inbox()).unwrap();
        let mut names: Vec<OsString> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }
}

/// Returns bytes that do not repeat.
pub fn bytes(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Returns the bytes allocated on the disk.
pub fn allocated_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

/// Starts a receiver that listens in a thread.
pub fn listening(receive: &Receive, address: &str) -> (Address, JoinHandle<Received>) {
    let listening = receive.listen(&address.parse().unwrap()).unwrap();
    let address = listening.address().clone();
    (address, std::thread::spawn(move || listening.once()))
}

/// Runs one transfer over an address of this kind.
pub fn transfer(send: &Send, receive: &Receive, address: &str) -> (Sent, Received) {
    let (address, receiver) = listening(receive, address);
    let sent = send.to(&address);
    (sent, receiver.join().unwrap())
}

/// Runs one transfer that must succeed.
pub fn ok(send: &Send, receive: &Receive, address: &str) -> (SendReport, ReceiveReport) {
    let (sent, received) = transfer(send, receive, address);
    (sent.unwrap(), received.unwrap())
}

/// Runs a receiver on one end of a socket pair in a thread. Returns the other end.
pub fn over_pair(receive: &Receive) -> (UnixStream, JoinHandle<Received>) {
    let (here, there) = UnixStream::pair().unwrap();
    let receive = receive.clone();
    (here, std::thread::spawn(move || receive.over(there)))
}

/// Returns a connection over loopback.
pub fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (here, listener.accept().unwrap().0)
}

/// Returns one TCP and one UNIX connection.
pub fn pairs() -> [(&'static str, OwnedFd, OwnedFd); 2] {
    let (tcp_here, tcp_there) = tcp_pair();
    let (unix_here, unix_there) = UnixStream::pair().unwrap();
    [("tcp", tcp_here.into(), tcp_there.into()), ("unix", unix_here.into(), unix_there.into())]
}

/// Checks that this is a peer's error with this text.
pub fn assert_peer(error: &Error, expected_text: &str) {
    assert!(matches!(error, Error::Peer { .. } | Error::PeerRefused { .. }), "{error:?}");
    assert!(error.to_string().contains(expected_text), "{expected_text:?} is not in: {error}");
}

/// Waits until a condition holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !holds() {
        assert!(begin.elapsed() < SOON, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}
