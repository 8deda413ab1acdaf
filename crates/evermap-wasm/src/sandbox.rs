//! A sandbox: an engine, a store, and its access table. Guests are made here.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use evermap::guest::{GuestReaders, Unmapped};
use evermap::{ApplicationKey, Store};
use wasmtime::{Cache, Config, Engine, InstancePre, Linker};

use crate::access::AccessTable;
use crate::application::{ApplicationId, SecretKey};
use crate::budget::{self, Budget};
use crate::error::{Error, Result};
use crate::guard::FaultGuard;
use crate::guest::{Guest, GuestOptions, Start, State};
use crate::heaps::{Heaps, Tenant, add_to_linker};
use crate::layout;
use crate::module::ModuleIdentity;
use crate::preopens::Preopens;

/// How a sandbox is made.
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
    /// The defaults: epochs, no fuel, no pages that fault, the fault guard.
    pub fn new() -> SandboxOptions {
        SandboxOptions::default()
    }

    /// Sets wasmtime's own options. The pooling allocator is refused when the sandbox is opened;
    /// that each memory has 4 GiB reserved and stays where it is, is set after this.
    pub fn config(mut self, configure: impl FnOnce(&mut Config)) -> SandboxOptions {
        configure(&mut self.config);
        self
    }

    /// Keeps compiled modules in wasmtime's cache directory of the user.
    pub fn cache(mut self) -> SandboxOptions {
        if let Ok(cache) = Cache::from_file(None) {
            self.config.cache(Some(cache));
        }
        self
    }

    /// Compiles code that asks at each loop and call whether it is to end. Without it neither a
    /// time limit nor the fault guard ends a guest that calls nothing.
    pub fn epochs(mut self, on: bool) -> SandboxOptions {
        self.epochs = on;
        self
    }

    /// Compiles code that counts what it does, for [`GuestOptions::fuel`].
    pub fn fuel(mut self, on: bool) -> SandboxOptions {
        self.fuel = on;
        self
    }

    /// What guests find in their windows where no object is. Holes need the fault guard.
    pub fn unmapped(mut self, unmapped: Unmapped) -> SandboxOptions {
        self.unmapped = unmapped;
        self
    }

    /// Gives level *read* as pages that cannot be stored to. They need the fault guard.
    pub fn read_only_pages(mut self, on: bool) -> SandboxOptions {
        self.read_only_pages = on;
        self
    }

    /// Leaves the fault guard out. A guest whose object's file is cut short behind its back
    /// then ends the process; so does a host call on a page without the right. For tests, and for
    /// processes that have handlers of their own for that.
    ///
    /// # Safety
    /// The embedder answers for such faults.
    pub unsafe fn without_guard(mut self) -> SandboxOptions {
        self.guard = false;
        self
    }

    /// Opens the store in a directory, or makes it, as a sandbox.
    ///
    /// # Errors
    /// The store's; `Engine` for options that objects cannot stand; `GuardTooLate`.
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
                why: "its pooling allocator hands memories to the next instance with the objects still mapped",
                remedy: "leave the allocation strategy as it is",
            });
        }
        guard.map(FaultGuard::check_order).transpose()?;
        let store = Store::open_or_create(&directory)?;
        let table = AccessTable::of_store(store.path());
        let readers = Arc::new(GuestReaders::new(&store));
        Ok(Sandbox { engine, store, readers, table, options: self })
    }
}

/// Bytes reserved for each linear memory: all that 32-bit pointers reach, so that it never moves.
const MEMORY_RESERVATION_BYTES: u64 = 1 << 32;

/// An engine with a store whose objects its guests have in their memories.
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
    /// Objects that guests read, kept open for the next guest.
    readers: Arc<GuestReaders>,
    table: AccessTable,
    options: SandboxOptions,
}

/// A compiled module.
#[derive(Clone)]
pub struct Module {
    compiled: wasmtime::Module,
    /// With its imports found, once it was started.
    prepared: Arc<OnceLock<InstancePre<State<()>>>>,
    name: String,
    identity: ModuleIdentity,
    /// Why objects cannot be mapped into its instances.
    objection: Option<String>,
    /// What an instance has of the budget from the beginning.
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
    /// Who it is.
    pub fn identity(&self) -> &ModuleIdentity {
        &self.identity
    }

    /// Adds a signature that came with the module, see [`ModuleIdentity::signed`].
    pub fn signed(mut self, signature: [u8; 64]) -> Module {
        self.identity = self.identity.signed(signature);
        self
    }
}

/// An application that guests may be run as: its id, and its key.
#[derive(Clone, Debug)]
pub struct Application {
    id: ApplicationId,
    /// What its objects carry.
    key: ApplicationKey,
    /// What the access table knows its key by.
    verifier: String,
    other_keys: BTreeMap<ApplicationId, SecretKey>,
}

impl Application {
    /// Its id.
    pub fn id(&self) -> &ApplicationId {
        &self.id
    }

    /// Gives it the key of another application, some of whose objects are shared with it. Which, the
    /// access table says.
    pub fn with_key_of(mut self, owner: ApplicationId, key: SecretKey) -> Application {
        self.other_keys.insert(owner, key);
        self
    }
}

impl Sandbox {
    /// Opens the store in a directory, or makes it, with the default options.
    ///
    /// # Errors
    /// As [`SandboxOptions::open`].
    pub fn open(directory: impl AsRef<Path>) -> Result<Sandbox> {
        SandboxOptions::new().open(directory)
    }

    /// Its store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// What its guests have read and the next ones may read again: how many objects are kept open.
    pub fn readers(&self) -> &GuestReaders {
        &self.readers
    }

    /// Who may do what.
    pub fn access(&self) -> &AccessTable {
        &self.table
    }

    /// wasmtime's engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Compiles a module, in WebAssembly's binary or text format.
    ///
    /// # Errors
    /// `Module`.
    pub fn compile(&self, name: &str, bytes: &[u8]) -> Result<Module> {
        let failed = |why: String| Error::Module { name: name.to_string(), why };
        // The first line says what was wrong; the others draw the place.
        let wasm = wat::parse_bytes(bytes).map_err(|e| {
            let why = e.to_string();
            failed(format!(
                "it is no WebAssembly module, neither binary nor text: {}",
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
            objection: layout::objection(&wasm),
            initial_bytes: layout::initial_bytes(&wasm),
        })
    }

    /// An application; it is made when there is none of this id.
    ///
    /// # Errors
    /// `WrongKey`, and the access table's.
    pub fn application(&self, id: ApplicationId, key: SecretKey) -> Result<Application> {
        self.table.enter(&id, &key)?;
        let (key, verifier) = (key.application_key()?, key.verifier());
        Ok(Application { id, key, verifier, other_keys: BTreeMap::new() })
    }

    /// Makes an instance of a module, for an application that the module is bound to.
    ///
    /// # Errors
    /// `NotBound`, `BudgetTooSmall`, `PreopenHoldsStore`, `PreopenHoldsProcesses`, `Module`.
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
                // Another thread's is as good.
                let prepared = self.prepare(module, |_| Ok(()))?;
                module.prepared.get_or_init(|| prepared)
            }
        };
        self.start_prepared(module, prepared, application, options, ())
    }

    /// The same, with functions and state of the embedder's own.
    ///
    /// # Errors
    /// As [`start`](Sandbox::start), and what `add` returns.
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

    /// Finds what a module imports. It takes longer than all else of a start, so it is kept where the
    /// embedder has nothing of its own to add.
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
        module.identity.check_bound(&self.table, &application.id)?;
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
        let heaps = Heaps::new(tenant, module.objection.as_deref());
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
