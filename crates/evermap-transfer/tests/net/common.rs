//! A place for files, a receiver in a thread, and pairs of sockets.

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

/// Long enough for a machine that does other things, short enough for a test that hangs.
pub const SOON: Duration = Duration::from_secs(20);

pub type Received = Result<ReceiveReport, Error>;
pub type Sent = Result<SendReport, Error>;

/// A directory with an inbox in it.
pub struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("inbox")).unwrap();
        Place { directory }
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

    /// What is in the inbox, temporary names included.
    pub fn received(&self) -> Vec<OsString> {
        let entries = std::fs::read_dir(self.inbox()).unwrap();
        let mut names: Vec<OsString> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }
}

/// Bytes that don't repeat.
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

/// Allocated on the disk.
pub fn allocated_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

/// The receiver, listening in a thread.
pub fn listening(receive: &Receive, address: &str) -> (Address, JoinHandle<Received>) {
    let listening = receive.listen(&address.parse().unwrap()).unwrap();
    let address = listening.address().clone();
    (address, std::thread::spawn(move || listening.once()))
}

/// One transfer over an address of this kind.
pub fn transfer(send: &Send, receive: &Receive, address: &str) -> (Sent, Received) {
    let (address, receiver) = listening(receive, address);
    let sent = send.to(&address);
    (sent, receiver.join().unwrap())
}

/// One transfer that is well.
pub fn ok(send: &Send, receive: &Receive, address: &str) -> (SendReport, ReceiveReport) {
    let (sent, received) = transfer(send, receive, address);
    (sent.unwrap(), received.unwrap())
}

/// The receiver over one end of a pair of sockets, in a thread.
pub fn over_pair(receive: &Receive) -> (UnixStream, JoinHandle<Received>) {
    let (here, there) = UnixStream::pair().unwrap();
    let receive = receive.clone();
    (here, std::thread::spawn(move || receive.over(there)))
}

/// A connection over loopback.
pub fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (here, listener.accept().unwrap().0)
}

/// Both kinds of connection.
pub fn pairs() -> [(&'static str, OwnedFd, OwnedFd); 2] {
    let (tcp_here, tcp_there) = tcp_pair();
    let (unix_here, unix_there) = UnixStream::pair().unwrap();
    [("tcp", tcp_here.into(), tcp_there.into()), ("unix", unix_here.into(), unix_there.into())]
}

/// That a peer's error says this.
pub fn assert_peer(error: &Error, says: &str) {
    assert!(matches!(error, Error::Peer { .. } | Error::PeerRefused { .. }), "{error:?}");
    assert!(error.to_string().contains(says), "{says:?} is not in: {error}");
}

/// Waits until something holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !holds() {
        assert!(begin.elapsed() < SOON, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}
