//! Guests: instances of modules, with their objects, limits and costs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evermap::WriteOptions;
use wasmtime::{CallHook, Engine, Extern, Instance, InstancePre, Store, Trap, UpdateDeadline};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::{FsPerms, I32Exit, WasiCtxBuilder, WasiView};

use crate::access::Level;
use crate::budget::{Budget, HANDLES_MAX};
use crate::codes::{Code, Refusal};
use crate::error::{Error, Result};
use crate::guard::{Fault, WatchedWindow};
use crate::heaps::{Heaps, LinearMemory, NO_MEMORY};
use crate::layout;
use crate::names::ObjectName;
use crate::preopens::{Preopen, Preopens};
use crate::report::Report;

/// Arguments, directories, rights and limits of a guest.
///
/// ```
/// use std::time::Duration;
/// use evermap_wasm::{GuestOptions, Level};
///
/// let options = GuestOptions::new()
///     .argument("player")
///     .variable("LANG", "C.UTF-8")
///     .inherit_stdio()
///     .allow("editor:notes".parse()?, Level::Snapshot)
///     .time_max(Duration::from_secs(10));
/// # let _ = options;
/// # Ok::<(), evermap_wasm::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct GuestOptions {
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) preopens: Vec<Preopen>,
    pub(crate) inherit_stdio: bool,
    pub(crate) hop_threads: bool,
    pub(crate) allowed: Vec<(ObjectName, Level)>,
    pub(crate) fuel: Option<u64>,
    pub(crate) time_max: Option<Duration>,
    pub(crate) memory_bytes_max: Option<usize>,
    pub(crate) write: WriteOptions,
}

impl GuestOptions {
    /// Returns options without arguments, directories, standard streams or limits.
    pub fn new() -> GuestOptions {
        GuestOptions::default()
    }

    /// Adds an argument; the first one is the program's name.
    pub fn argument(mut self, argument: impl Into<String>) -> GuestOptions {
        self.arguments.push(argument.into());
        self
    }

    /// Sets a variable of the guest's environment.
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<String>) -> GuestOptions {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Shows the host directory `host` to the guest at the path `guest`. Starting the guest fails
    /// if the directory contains the store or a `proc` file system at any depth, or lies in the
    /// store, directly or by mounts.
    pub fn preopen(
        mut self,
        host: impl AsRef<Path>,
        guest: impl Into<String>,
        writable: bool,
    ) -> GuestOptions {
        let (host, guest) = (host.as_ref().to_path_buf(), guest.into());
        self.preopens.push(Preopen { host, guest, writable });
        self
    }

    /// Connects the guest to this process's standard streams.
    pub fn inherit_stdio(mut self) -> GuestOptions {
        self.inherit_stdio = true;
        self
    }

    /// Runs WASI's file operations in other threads, as WASI does by default. Use this if guests
    /// must not block the thread that runs them. It adds about 20 us to each operation.
    pub fn hop_threads(mut self) -> GuestOptions {
        self.hop_threads = true;
        self
    }

    /// Sets the guest's right to an object for this run. It overrides the access table.
    pub fn allow(mut self, object: ObjectName, level: Level) -> GuestOptions {
        self.allowed.push((object, level));
        self
    }

    /// Ends the guest after this many units of fuel, about one per instruction. Needs
    /// [`SandboxOptions::fuel`](crate::SandboxOptions::fuel).
    pub fn fuel(mut self, fuel: u64) -> GuestOptions {
        self.fuel = Some(fuel);
        self
    }

    /// Ends the guest this time after its start; time between calls of the guest counts too. Needs
    /// epochs, which are on by default. A WASI call that waits (`poll_oneoff`, a read of the
    /// standard input) is not interrupted: the guest ends when the call returns.
    pub fn time_max(mut self, time: Duration) -> GuestOptions {
        self.time_max = Some(time);
        self
    }

    /// Limits the bytes of all memories and tables of the guest together; the default is 4 GiB. A
    /// guest with objects starts with 1.25 GiB. Most of that is the window, which uses no memory
    /// until it is touched. A growth beyond the limit fails in the guest, and
    /// [`Report::refused_growths`] counts it.
    pub fn memory_bytes_max(mut self, bytes: usize) -> GuestOptions {
        self.memory_bytes_max = Some(bytes);
        self
    }

    /// Sets the durability of its commits and the length of its logs.
    pub fn write_options(mut self, options: WriteOptions) -> GuestOptions {
        self.write = options;
        self
    }

    pub(crate) fn wasi(&self, preopens: &Preopens) -> Result<WasiP1Ctx> {
        let mut builder = WasiCtxBuilder::new();
        builder
            .allow_blocking_current_thread(!self.hop_threads)
            .args(&self.arguments)
            .envs(&self.environment);
        if self.inherit_stdio {
            builder.inherit_stdio();
        }
        for (preopen, opened) in self.preopens.iter().zip(preopens.paths()) {
            let rights = if preopen.writable { FsPerms::ReadWrite } else { FsPerms::ReadOnly };
            let opened = builder.preopened_dir(opened, &preopen.guest, rights);
            opened.map_err(|e| Error::Io {
                path: preopen.host.clone(),
                doing: "open",
                source: std::io::Error::other(format!("{e:#}")),
            })?;
        }
        let mut wasi = builder.build_p1();
        wasi.ctx().table.set_max_capacity(HANDLES_MAX);
        Ok(wasi)
    }
}

/// State of one instance, for the host functions that the guest calls.
///
/// `T` is the embedder's part.
pub struct State<T> {
    // The first field: objects are unmapped before the rest is dropped.
    heaps: Heaps,
    wasi: WasiP1Ctx,
    budget: Budget,
    expired: Arc<AtomicBool>,
    host: T,
}

impl<T> State<T> {
    pub(crate) fn new(heaps: Heaps, wasi: WasiP1Ctx, budget: Budget, host: T) -> State<T> {
        State { heaps, wasi, budget, expired: Arc::default(), host }
    }

    /// Returns the embedder's part.
    pub fn host(&self) -> &T {
        &self.host
    }

    /// Returns the embedder's part for changes.
    pub fn host_mut(&mut self) -> &mut T {
        &mut self.host
    }

    pub(crate) fn heaps_mut(&mut self) -> &mut Heaps {
        &mut self.heaps
    }

    pub(crate) fn wasi_mut(&mut self) -> &mut WasiP1Ctx {
        &mut self.wasi
    }

    fn death(&self) -> Option<Death> {
        let (fault, offset) = self
            .heaps
            .linear()
            .and_then(LinearMemory::watched_window)
            .and_then(WatchedWindow::fault)?;
        Some(Death::Fault { fault, offset })
    }

    /// Returns an error if the instance must end.
    fn check_alive(&self) -> wasmtime::Result<()> {
        match self.death() {
            Some(death) => Err(wasmtime::Error::from(death)),
            None if self.expired.load(Ordering::Acquire) => {
                Err(wasmtime::Error::from(Death::Expired))
            }
            None => Ok(()),
        }
    }
}

/// The reason why a guest with threads cannot map objects.
const SHARED: &str = "the module's memory is shared, and objects cannot be mapped into shared memories; build it without threads, for wasm32-wasip1";

/// The reason why the host ended an instance.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum Death {
    #[error("the guest's window faulted in host code ({fault:?}) at {offset:#x}")]
    Fault { fault: Fault, offset: usize },
    #[error("the guest reached its time limit")]
    Expired,
}

/// The way in which a guest's call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The guest returned, or called `exit` with this status.
    Exited(i32),
    /// The guest trapped and cannot be called again.
    Trapped(String),
    /// A host call or a bulk instruction faulted on a page of the guest's window.
    Faulted {
        /// The kind of fault.
        fault: Fault,
        /// Offset in the window.
        window_offset: u64,
    },
    /// The guest used up its fuel.
    OutOfFuel,
    /// The guest reached its time limit.
    OutOfTime,
}

/// One instance of a module. Dropping it unmaps its objects and discards uncommitted changes.
///
/// ```
/// use evermap_wasm::{End, GuestOptions, Sandbox, SecretKey};
/// # let directory = tempfile::tempdir()?;
/// let sandbox = Sandbox::open(directory.path().join("store"))?;
/// let module = sandbox.compile("sums", br#"(module
///     (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))
///     (func (export "trap") unreachable))"#)?;
/// let application = sandbox.application("sums".parse()?, SecretKey::random()?)?;
/// let mut guest = sandbox.start(&module, &application, &GuestOptions::new())?;
/// assert_eq!(guest.call_with::<_, i32>("add", (2, 3))?, Ok(5));
/// // A trap is a result of the call, not an error.
/// assert!(matches!(guest.call("trap")?, End::Trapped(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Guest<T: 'static = ()> {
    // Dropped before the store, because the timer advances the epoch of the store's engine.
    _timer: Option<Timer>,
    store: Store<State<T>>,
    instance: Option<Instance>,
    name: String,
    elapsed: Duration,
    /// Set once the guest cannot be called again.
    ended: Option<End>,
}

pub(crate) struct Start<'a> {
    pub(crate) name: &'a str,
    pub(crate) unmapped: evermap::guest::Unmapped,
    pub(crate) guarded: bool,
    pub(crate) epochs: bool,
}

impl<T: Send + 'static> Guest<T> {
    pub(crate) fn start(
        start: &Start<'_>,
        prepared: &InstancePre<State<T>>,
        state: State<T>,
        options: &GuestOptions,
    ) -> Result<Guest<T>> {
        let engine = prepared.module().engine().clone();
        let failed = |why: wasmtime::Error| Error::Module {
            name: start.name.to_string(),
            why: format!("{why:#}"),
        };
        let mut store = Store::new(&engine, state);
        store.limiter(|state| &mut state.budget);
        if let Some(fuel) = options.fuel {
            store.set_fuel(fuel).map_err(failed)?;
        }
        store.call_hook(|mut context, hook| {
            let state = context.data_mut();
            match hook {
                CallHook::CallingHost => state.heaps.counts.host_calls += 1,
                CallHook::CallingWasm => state.heaps.counts.guest_calls += 1,
                CallHook::ReturningFromHost | CallHook::ReturningFromWasm => {}
            }
            state.check_alive()
        });
        if start.epochs {
            store.set_epoch_deadline(1);
            store.epoch_deadline_callback(|context| {
                context.data().check_alive().map(|()| UpdateDeadline::Continue(1))
            });
        }
        if options.time_max.is_some() && !start.epochs {
            let why = "the guest has a time limit, but the sandbox was opened without epochs, which enforce it; enable epochs or remove the limit";
            return Err(failed(wasmtime::Error::msg(why)));
        }
        let timer = options
            .time_max
            .map(|time| Timer::start(engine.clone(), Arc::clone(&store.data().expired), time));
        let timer = timer.transpose()?;
        let (name, ended) = (start.name.to_string(), None);
        let elapsed = Duration::ZERO;
        let mut guest = Guest { _timer: timer, store, instance: None, name, elapsed, ended };
        guest.instantiate(start, prepared, &engine).map_err(failed)?;
        Ok(guest)
    }

    fn instantiate(
        &mut self,
        start: &Start<'_>,
        prepared: &InstancePre<State<T>>,
        engine: &Engine,
    ) -> wasmtime::Result<()> {
        let instance = prepared.instantiate(&mut self.store)?;
        self.instance = Some(instance);
        let linear = match instance.get_export(&mut self.store, "memory") {
            Some(Extern::Memory(memory)) => {
                let bytes = memory.data_size(&self.store);
                match std::ptr::NonNull::new(memory.data_ptr(&self.store)) {
                    None => Err(layout::refusal("the module's memory is empty")),
                    // SAFETY: the engine's configuration, which the sandbox sets, reserves 4 GiB
                    // for each memory and keeps it in place until the store is dropped. The state,
                    // with the mapped objects, is dropped earlier. No code here makes slices of it.
                    Some(base) => unsafe {
                        let guarded_by = start.guarded.then_some(engine);
                        LinearMemory::new(base, bytes, start.unmapped, guarded_by)
                    },
                }
            }
            Some(Extern::SharedMemory(_)) => Err(Refusal::new(Code::MemoryLayout, SHARED)),
            _ => Err(Refusal::new(Code::MemoryLayout, NO_MEMORY)),
        };
        self.store.data_mut().heaps.attach(linear);
        Ok(())
    }

    /// Runs the program: calls the export `_start`.
    ///
    /// # Errors
    /// `Module` if the export is missing or has another type. A trap or another early end is a
    /// result, not an error.
    pub fn run(&mut self) -> Result<End> {
        self.call("_start")
    }

    /// Calls an exported function without parameters or results.
    ///
    /// # Errors
    /// Same errors as [`run`](Guest::run).
    pub fn call(&mut self, function: &str) -> Result<End> {
        self.call_with::<(), ()>(function, ()).map(|called| called.err().unwrap_or(End::Exited(0)))
    }

    /// Calls an exported function. Returns its results, or how the guest ended.
    ///
    /// # Errors
    /// Same errors as [`run`](Guest::run).
    pub fn call_with<P, R>(&mut self, function: &str, parameters: P) -> Result<Result<R, End>>
    where
        P: wasmtime::WasmParams,
        R: wasmtime::WasmResults,
    {
        if let Some(end) = &self.ended {
            return Ok(Err(end.clone()));
        }
        let failed = |why: String| Error::Module { name: self.name.clone(), why };
        let Some(instance) = self.instance else {
            return Err(failed("the module was not started".to_string()));
        };
        let called = instance
            .get_typed_func::<P, R>(&mut self.store, function)
            .map_err(|e| failed(format!("{e:#}")))?;
        let began = Instant::now();
        let result = called.call(&mut self.store, parameters);
        self.elapsed += began.elapsed();
        // The last host call, or a bulk instruction after it, can have faulted.
        let result = result.and_then(|value| self.store.data().check_alive().map(|()| value));
        Ok(result.map_err(|error| {
            let end = end_of(&error);
            self.ended = Some(end.clone());
            if !matches!(end, End::Exited(0)) {
                // The guest cannot run again, so its uncommitted changes are useless.
                self.store.data_mut().heaps.clear();
            }
            end
        }))
    }

    /// Returns the costs of its calls so far.
    pub fn report(&self) -> Report {
        let state = self.store.data();
        let report = state.heaps.counts.report(self.elapsed);
        Report { refused_growths: state.budget.refused(), ..report }
    }

    /// Returns the limit on the bytes of its memories and tables together.
    pub fn memory_bytes_max(&self) -> usize {
        self.store.data().budget.bytes_max()
    }

    /// Returns the last error that the guest received and its message, for guests that do not print
    /// it themselves.
    pub fn last_refusal(&self) -> Option<(Code, &str)> {
        self.store.data().heaps.last_refusal()
    }

    /// Returns the embedder's part of its state.
    pub fn host(&self) -> &T {
        self.store.data().host()
    }

    /// Returns the embedder's part of its state for changes.
    pub fn host_mut(&mut self) -> &mut T {
        self.store.data_mut().host_mut()
    }
}

impl<T> Drop for Guest<T> {
    fn drop(&mut self) {
        self.store.data_mut().heaps.clear();
    }
}

fn end_of(error: &wasmtime::Error) -> End {
    if let Some(exit) = error.downcast_ref::<I32Exit>() {
        return End::Exited(exit.0);
    }
    match error.downcast_ref::<Death>() {
        Some(Death::Expired) => return End::OutOfTime,
        Some(Death::Fault { fault, offset }) => {
            return End::Faulted { fault: *fault, window_offset: *offset as u64 };
        }
        None => {}
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => End::OutOfFuel,
        _ => End::Trapped(format!("{:#}", error.root_cause())),
    }
}

/// Ends a guest at its time limit.
struct Timer {
    /// Dropping the sender stops the thread.
    cancel: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Interval at which the epoch is advanced again after the time limit.
const EPOCH_INTERVAL: Duration = Duration::from_millis(10);

impl Timer {
    fn start(engine: Engine, expired: Arc<AtomicBool>, time: Duration) -> Result<Timer> {
        let (cancel, cancelled) = mpsc::channel();
        let wait = move || {
            let mut next = time;
            // Repeated, because a guest that checks the epoch at this moment can set its next
            // deadline after the epoch that should end it.
            while cancelled.recv_timeout(next) == Err(mpsc::RecvTimeoutError::Timeout) {
                expired.store(true, Ordering::Release);
                engine.increment_epoch();
                next = EPOCH_INTERVAL;
            }
        };
        let thread = std::thread::Builder::new()
            .name("evermap-guest-time".to_string())
            .spawn(wait)
            .map_err(Error::io("start a thread for", "a guest's time limit"))?;
        Ok(Timer { cancel: Some(cancel), thread: Some(thread) })
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.cancel = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
