//! Shared code of the sandbox tests: a store, and guests in WebAssembly's text format.
#![allow(dead_code)]

pub mod random;

use std::path::Path;

use evermap_wasm::{
    Application, End, Guest, GuestOptions, ObjectName, Sandbox, SandboxOptions, SecretKey,
};

/// Offset of a guest's first data: the metadata of an object created with less than 4 MiB take 64
/// KiB at most.
pub const DATA: u32 = 65536;

/// Level *write*, as guests pass it.
pub const WRITE: u32 = 3;

/// Returns a module with the imports and a memory with the window. The functions in `body` can use
/// `$map` and the other imports.
///
/// The name `heap` is at `0x50000000`, `other` at `0x50000100`; from `0x50001000` on the memory is
/// free.
pub fn module(body: &str) -> String {
    format!(
        r#"(module
            (import "evermap" "map" (func $map (param i32 i32 i32 i32) (result i32)))
            (import "evermap" "unmap" (func $unmap (param i32) (result i32)))
            (import "evermap" "commit" (func $commit (param i32) (result i32)))
            (import "evermap" "stat" (func $stat (param i32 i32 i32) (result i32)))
            (import "evermap" "last_fault" (func $last_fault (param i32 i32) (result i32)))
            (memory (export "memory") 20482)
            (data (i32.const 0x50000000) "heap")
            (data (i32.const 0x50000100) "other")
            (func (export "map_heap") (param $bytes i32) (param $level i32) (result i32)
                (call $map (i32.const 0x50000000) (i32.const 4) (local.get $bytes) (local.get $level)))
            (func (export "map_other") (param $bytes i32) (param $level i32) (result i32)
                (call $map (i32.const 0x50000100) (i32.const 5) (local.get $bytes) (local.get $level)))
            (func (export "map_at") (param i32 i32 i32 i32) (result i32)
                (call $map (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
            (func (export "unmap") (param i32) (result i32) (call $unmap (local.get 0)))
            (func (export "commit") (param i32) (result i32) (call $commit (local.get 0)))
            (func (export "stat") (param i32 i32 i32) (result i32)
                (call $stat (local.get 0) (local.get 1) (local.get 2)))
            (func (export "last_fault") (param i32 i32) (result i32)
                (call $last_fault (local.get 0) (local.get 1)))
            (func (export "load") (param i32) (result i32) (i32.load (local.get 0)))
            (func (export "load8") (param i32) (result i32) (i32.load8_u (local.get 0)))
            (func (export "store") (param i32 i32) (i32.store (local.get 0) (local.get 1)))
            (func (export "store8") (param i32 i32) (i32.store8 (local.get 0) (local.get 1)))
            {body}
        )"#
    )
}

pub struct Fixture {
    pub directory: tempfile::TempDir,
    pub sandbox: Sandbox,
}

impl Fixture {
    pub fn new() -> Fixture {
        Fixture::with(SandboxOptions::new())
    }

    pub fn with(options: SandboxOptions) -> Fixture {
        Fixture::made_in(tempfile::tempdir().unwrap(), options)
    }

    /// Creates the store on `/dev/shm` if possible, for tests that open thousands of objects.
    pub fn in_memory(options: SandboxOptions) -> Fixture {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Fixture::made_in(directory.unwrap(), options)
    }

    pub fn made_in(directory: tempfile::TempDir, options: SandboxOptions) -> Fixture {
        let sandbox = options.open(directory.path().join("store")).unwrap();
        Fixture { directory, sandbox }
    }

    pub fn application(&self, id: &str) -> Application {
        self.sandbox.application(id.parse().unwrap(), key_of(id)).unwrap()
    }

    pub fn start(&self, id: &str, body: &str) -> Machine {
        self.start_with(id, body, &GuestOptions::new())
    }

    pub fn start_with(&self, id: &str, body: &str, options: &GuestOptions) -> Machine {
        let module = self.sandbox.compile("test", module(body).as_bytes()).unwrap();
        Machine(self.sandbox.start(&module, &self.application(id), options).unwrap())
    }

    pub fn store(&self) -> &Path {
        self.sandbox.store().path()
    }

    pub fn assert_sound(&self) {
        let options = evermap::tools::CheckOptions::new();
        let report = evermap::tools::check(self.store(), &options).unwrap();
        assert!(!report.is_damaged(), "{report:?}");
    }

    /// Returns the path of an object's file.
    pub fn file_of(&self, object: &str) -> std::path::PathBuf {
        let info = self.sandbox.store().info(object).unwrap();
        self.store().join("objects").join(info.uuid)
    }
}

pub fn key_of(id: &str) -> SecretKey {
    let mut bytes = [0; 32];
    bytes[..id.len()].copy_from_slice(id.as_bytes());
    SecretKey::from_bytes(bytes)
}

pub fn object(name: &str) -> ObjectName {
    name.parse().unwrap()
}

/// A guest whose exports are called one by one.
pub struct Machine(pub Guest);

impl Machine {
    pub fn call<P, R>(&mut self, function: &str, parameters: P) -> Result<R, End>
    where
        P: evermap_wasm::wasmtime::WasmParams,
        R: evermap_wasm::wasmtime::WasmResults,
    {
        self.0.call_with(function, parameters).unwrap()
    }

    /// Maps the object `heap`. Returns its address, or the negative code.
    pub fn map(&mut self, bytes: u32, level: u32) -> i32 {
        self.call("map_heap", (bytes, level)).unwrap()
    }

    /// Maps the object `heap` and asserts success.
    pub fn map_ok(&mut self, bytes: u32, level: u32) -> u32 {
        let base = self.map(bytes, level);
        assert!(base > 0, "{base}: {}", self.message());
        base as u32
    }

    pub fn commit(&mut self, base: u32) -> i32 {
        self.call("commit", base).unwrap()
    }

    pub fn unmap(&mut self, base: u32) -> i32 {
        self.call("unmap", base).unwrap()
    }

    pub fn load(&mut self, address: u32) -> u32 {
        self.call("load", address).unwrap()
    }

    pub fn store(&mut self, address: u32, value: u32) {
        self.call("store", (address, value)).unwrap()
    }

    /// Stores bytes with the guest's own stores.
    pub fn put(&mut self, address: u32, bytes: &[u8]) {
        for (at, byte) in (address..).zip(bytes) {
            self.call::<_, ()>("store8", (at, u32::from(*byte))).unwrap();
        }
    }

    /// Returns the message of the last error.
    pub fn message(&mut self) -> String {
        let bytes: i32 = self.call("last_fault", (0x5000_1000u32, 4096u32)).unwrap();
        let byte = |at| self.call::<_, u32>("load8", 0x5000_1000u32 + at as u32).unwrap() as u8;
        let text: Vec<u8> = (4..bytes).map(byte).collect();
        String::from_utf8(text).unwrap()
    }
}
