//! Sandboxes: an engine, a store and its access table. A sandbox compiles modules and starts
//! guests.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use evermap::guest::{GuestReaders, Unmapped};
use evermap::{ApplicationKey, Store};
use wasmtime::{Cache, Config, Engine, InstancePre, Linker};

use crate::access::AccessTable;
use crate::application::SecretKey;
use crate::budget::{self, Budget};
use crate::error::{Error, Result};
use crate::guard::FaultGuard;
use crate::guest::{Guest, GuestOptions, Start, State};
use crate::heaps::{Heaps, Tenant, add_to_linker};
use crate::layout;
use crate::module::ModuleIdentity;
use crate::names::ApplicationId;
use crate::preopens::Preopens;

/// Options of a sandbox.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// let sandbox = evermap_wasm::SandboxOptions::new()
///     .fuel(true)
///     .config(|config| {
///         config.wasm_simd(true);
///     })
///     .open(directory.path().join("store"))?;
/// assert!(sandbox.store().list()?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SandboxOptions {
    config: Config,
    epochs: bool,
    fuel: bool,
    unmapped: Unmapped,
    read_only_pages: bool,
    guard: bool,
}

impl Default for SandboxOptions {
    fn default() -> SandboxOptions {
        SandboxOptions {
            config: Config::new(),
            epochs: true,
            fuel: false,
            unmapped: Unmapped::Zeros,
            read_only_pages: false,
            guard: true,
        }
    }
}

impl SandboxOptions {
    /// Returns the defaults: epochs, no fuel, no pages that fault, the fault guard.
    pub fn new() -> SandboxOptions {
        SandboxOptions::default()
    }

    /// Sets wasmtime's options. [`open`](SandboxOptions::open) rejects the pooling allocator. It
    /// also overrides four options: each memory has 4 GiB reserved, memories do not move, and
    /// epochs and fuel are set by [`epochs`](SandboxOptions::epochs) and
    /// [`fuel`](SandboxOptions::fuel).
    pub fn config(mut self, configure: impl FnOnce(&mut Config)) -> SandboxOptions {
        configure(&mut self.config);
        self
    }

    /// Keeps compiled modules in the user's wasmtime cache directory.
    pub fn cache(mut self) -> SandboxOptions {
        if let Ok(cache) = Cache::from_file(None) {
            self.config.cache(Some(cache));
        }
        self
    }

    /// Compiles code that checks at each loop and call if the guest must end. Without epochs,
    /// neither a time limit nor the fault guard can end a guest that makes no calls.
    pub fn epochs(mut self, on: bool) -> SandboxOptions {
        self.epochs = on;
        self
    }

    /// Compiles code that counts its instructions, for [`GuestOptions::fuel`].
    pub fn fuel(mut self, on: bool) -> SandboxOptions {
        self.fuel = on;
        self
    }

    /// Sets the contents of the window where no object is mapped. Holes need the fault guard.
    pub fn unmapped(mut self, unmapped: Unmapped) -> SandboxOptions {
        self.unmapped = unmapped;
        self
    }

    /// Maps level *read* as read-only pages. They need the fault guard.
    pub fn read_only_pages(mut self, on: bool) -> SandboxOptions {
        self.read_only_pages = on;
        self
    }

    /// Opens the sandbox without the fault guard. Then a SIGBUS ends the process when another
    /// program truncates the file of a mapped object, and so does a host call that touches a page
    /// without the needed right. This is for tests, and for processes with their own handlers for
    /// these faults.
    ///
    /// # Safety
    /// The embedder handles faults in guest windows.
    pub unsafe fn without_guard(mut self) -> SandboxOptions {
        self.guard = false;
        self
    }

    /// Opens a sandbox on the store in `directory`. Creates the store if it does not exist.
    ///
    /// # Errors
    /// `Engine` for options that do not work with mapped objects, `Module` for options that
    /// wasmtime rejects, `GuardTooLate`, and the store's errors.
    pub fn open(mut self, directory: impl AsRef<Path>) -> Result<Sandbox> {
        let guard = self.guard.then(FaultGuard::install).transpose()?;
        self.config
            .epoch_interruption(self.epochs)
            .consume_fuel(self.fuel)
            .memory_reservation(MEMORY_RESERVATION_BYTES)
            .memory_may_move(false);
        let engine = Engine::new(&self.config).map_err(|why| Error::Module {
            name: "(the engine)".to_string(),
            why: format!("{why:#}"),
        })?;
        if engine.pooling_allocator_metrics().is_some() {
            return Err(Error::Engine {
                why: "its pooling allocator reuses memories while objects are still mapped in them",
                remedy: "do not set an allocation strategy",
            });
        }
        guard.map(FaultGuard::check_order).transpose()?;
        let store = Store::open_or_create(&directory)?;
        let table = AccessTable::of_store(store.path());
        let readers = Arc::new(GuestReaders::new(&store));
        Ok(Sandbox { engine, store, readers, table, options: self })
    }
}

/// Bytes reserved for each linear memory. 32-bit addresses reach no further, so the memory never
/// moves.
const MEMORY_RESERVATION_BYTES: u64 = 1 << 32;

/// An engine with a store whose objects guests map into their memories.
///
/// ```
/// use evermap_wasm::{GuestOptions, End, Sandbox, SecretKey};
/// # let directory = tempfile::tempdir()?;
/// let sandbox = Sandbox::open(directory.path().join("store"))?;
/// let module = sandbox.compile("counter", br#"(module
///     (import "evermap" "map" (func $map (param i32 i32 i32 i32) (result i32)))
///     (import "evermap" "commit" (func $commit (param i32) (result i32)))
///     (memory (export "memory") 20481)
///     (data (i32.const 0x50000000) "runs")
///     (func (export "_start") (local $object i32) (local $count i32)
///         (local.set $object
///             (call $map (i32.const 0x50000000) (i32.const 4) (i32.const 65536) (i32.const 3)))
///         ;; The first 8 bytes of the object's data, for a guest without an allocator.
///         (local.set $count (i32.add (local.get $object) (i32.const 65536)))
///         (i32.store (local.get $count) (i32.add (i32.load (local.get $count)) (i32.const 1)))
///         (drop (call $commit (local.get $object)))))"#)?;
/// let application = sandbox.application("counter".parse()?, SecretKey::from_bytes([7; 32]))?;
/// let mut guest = sandbox.start(&module, &application, &GuestOptions::new())?;
/// assert_eq!(guest.run()?, End::Exited(0));
/// assert_eq!(guest.report().commits, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Sandbox {
    engine: Engine,
    store: Store,
    /// Objects that guests have read, kept open for later guests.
    readers: Arc<GuestReaders>,
    table: AccessTable,
    options: SandboxOptions,
}

/// A compiled module.
#[derive(Clone)]
pub struct Module {
    compiled: wasmtime::Module,
    /// The module with its imports resolved; set by the first start.
    prepared: Arc<OnceLock<InstancePre<State<()>>>>,
    name: String,
    identity: ModuleIdentity,
    /// The reason why its instances cannot map objects, if there is one.
    layout_error: Option<String>,
    /// Bytes of the budget that each instance uses at its start.
    initial_bytes: u64,
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Module { name, identity, .. } = self;
        let mut shown = f.debug_struct("Module");
        shown.field("name", name).field("identity", identity).finish_non_exhaustive()
    }
}

impl Module {
    /// Returns the module's hash and signatures.
    pub fn identity(&self) -> &ModuleIdentity {
        &self.identity
    }

    /// Adds a signature of the module, see [`ModuleIdentity::signed`].
    pub fn signed(mut self, signature: [u8; 64]) -> Module {
        self.identity = self.identity.signed(signature);
        self
    }
}

/// An application that guests can run as: its id and keys.
#[derive(Clone, Debug)]
pub struct Application {
    id: ApplicationId,
    /// The key in the headers of its objects.
    key: ApplicationKey,
    /// The hash by which the access table recognises its key.
    verifier: String,
    other_keys: BTreeMap<ApplicationId, SecretKey>,
}

impl Application {
    /// Returns its id.
    pub fn id(&self) -> &ApplicationId {
        &self.id
    }

    /// Adds the key of another application that shares objects with this one. The access table says
    /// which objects are shared.
    pub fn with_key_of(mut self, owner: ApplicationId, key: SecretKey) -> Application {
        self.other_keys.insert(owner, key);
        self
    }
}

impl Sandbox {
    /// Opens a sandbox on the store in `directory` with the default options. Creates the store if
    /// it does not exist.
    ///
    /// # Errors
    /// Same errors as [`SandboxOptions::open`].
    pub fn open(directory: impl AsRef<Path>) -> Result<Sandbox> {
        SandboxOptions::new().open(directory)
    }

    /// Returns the store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the objects that guests have read and that are kept open for later guests.
    pub fn readers(&self) -> &GuestReaders {
        &self.readers
    }

    /// Returns the access table.
    pub fn access(&self) -> &AccessTable {
        &self.table
    }

    /// Returns wasmtime's engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Compiles a module, in WebAssembly's binary or text format.
    ///
    /// # Errors
    /// `Module`.
    pub fn compile(&self, name: &str, bytes: &[u8]) -> Result<Module> {
        let failed = |why: String| Error::Module { name: name.to_string(), why };
        // The first line has the cause; the other lines quote the source.
        let wasm = wat::parse_bytes(bytes).map_err(|e| {
            let why = e.to_string();
            failed(format!(
                "not a WebAssembly module, neither binary nor text: {}",
                why.lines().next().unwrap_or_default()
            ))
        })?;
        let compiled = wasmtime::Module::from_binary(&self.engine, &wasm)
            .map_err(|e| failed(format!("{e:#}")))?;
        Ok(Module {
            compiled,
            prepared: Arc::default(),
            name: name.to_string(),
            identity: ModuleIdentity::of(bytes),
            layout_error: layout::layout_error(&wasm),
            initial_bytes: layout::initial_bytes(&wasm),
        })
    }

    /// Returns an application. Creates it if the access table has none with this id.
    ///
    /// # Errors
    /// `WrongKey`, and the errors of reading and writing the access table.
    pub fn application(&self, id: ApplicationId, key: SecretKey) -> Result<Application> {
        self.table.enter(&id, &key)?;
        let (key, verifier) = (key.application_key()?, key.verifier());
        Ok(Application { id, key, verifier, other_keys: BTreeMap::new() })
    }

    /// Starts an instance of a module as an application. The module must be bound to the
    /// application, or the application has no bindings.
    ///
    /// # Errors
    /// `NotBound`, `BudgetTooSmall`, `PreopenHoldsStore`, `PreopenHoldsProcesses`, `Module`, and
    /// the errors of reading the access table.
    pub fn start(
        &self,
        module: &Module,
        application: &Application,
        options: &GuestOptions,
    ) -> Result<Guest> {
        if !Engine::same(module.compiled.engine(), &self.engine) {
            return self.start_with(module, application, options, (), |_| Ok(()));
        }
        let prepared = match module.prepared.get() {
            Some(prepared) => prepared,
            None => {
                // If another thread is faster, its result is used.
                let prepared = self.prepare(module, |_| Ok(()))?;
                module.prepared.get_or_init(|| prepared)
            }
        };
        self.start_prepared(module, prepared, application, options, ())
    }

    /// Starts an instance with functions and state of the embedder. `add` defines the functions.
    ///
    /// # Errors
    /// Same errors as [`start`](Sandbox::start), and the errors of `add`.
    pub fn start_with<T: Send + 'static>(
        &self,
        module: &Module,
        application: &Application,
        options: &GuestOptions,
        host: T,
        add: impl FnOnce(&mut Linker<State<T>>) -> wasmtime::Result<()>,
    ) -> Result<Guest<T>> {
        let prepared = self.prepare(module, add)?;
        self.start_prepared(module, &prepared, application, options, host)
    }

    /// Resolves a module's imports. This is the slowest step of a start, so the result is kept when
    /// the embedder adds no functions.
    fn prepare<T: Send + 'static>(
        &self,
        module: &Module,
        add: impl FnOnce(&mut Linker<State<T>>) -> wasmtime::Result<()>,
    ) -> Result<InstancePre<State<T>>> {
        let mut linker = Linker::new(&self.engine);
        let prepared = wasmtime_wasi::p1::add_to_linker_sync(&mut linker, State::wasi_mut)
            .and_then(|()| add_to_linker(&mut linker, State::heaps_mut))
            .and_then(|()| add(&mut linker))
            .and_then(|()| linker.instantiate_pre(&module.compiled));
        prepared.map_err(|e| Error::Module { name: module.name.clone(), why: format!("{e:#}") })
    }

    fn start_prepared<T: Send + 'static>(
        &self,
        module: &Module,
        prepared: &InstancePre<State<T>>,
        application: &Application,
        options: &GuestOptions,
        host: T,
    ) -> Result<Guest<T>> {
        let budget_bytes = options.memory_bytes_max.unwrap_or(budget::BYTES_DEFAULT);
        if module.initial_bytes > budget_bytes as u64 {
            return Err(Error::BudgetTooSmall {
                name: module.name.clone(),
                needed_bytes: module.initial_bytes,
                budget_bytes: budget_bytes as u64,
            });
        }
        self.table.check_bound(&application.id, &module.identity)?;
        let preopens = Preopens::open(options.preopens.iter(), self.store.path())?;
        let tenant = Tenant {
            store: self.store.clone(),
            readers: Arc::clone(&self.readers),
            table: self.table.clone(),
            application: application.id.clone(),
            key: application.key,
            verifier: application.verifier.clone(),
            other_keys: application.other_keys.clone(),
            allowed: options.allowed.clone(),
            write: options.write.clone(),
            read_only_pages: self.options.read_only_pages,
        };
        let wasi = options.wasi(&preopens)?;
        let heaps = Heaps::new(tenant, module.layout_error.as_deref());
        let state = State::new(heaps, wasi, Budget::new(budget_bytes), host);
        let start = Start {
            name: &module.name,
            unmapped: self.options.unmapped,
            guarded: self.options.guard,
            epochs: self.options.epochs,
        };
        Guest::start(&start, prepared, state, options)
    }
}
