//! Host kernels from C source, compiled into a shared object that is cached on disk and loaded.
//!
//! A kernel is found by its descriptor, which DTL_KERNEL of dtl_kernel.h defines in the object.
//! Objects are never unloaded (`sys::os::dl` gives the reason), so the code of a kernel outlives
//! its module.
//!
//! [`super::compiler`] runs the compiler, and [`crate::backend::kernel_cache`] caches its output.

use super::compiler::{Compiler, OBJECT};
use crate::abi::devices::exec::dtl_kernel_context_t;
use crate::abi::status::{DTL_ERROR_COMPILE_FAILED, DTL_ERROR_UNAVAILABLE, dtl_status_t};
use crate::abi::word::DTL_LANGUAGE_C;
use crate::backend::kernel_cache::{CachedObject, KernelCache};
use crate::error::{Error, Result, fail};
use crate::runtime::component::{
    Compiled, FoundKernel, KernelFn, KernelQuery, ModuleLaunch, Modules, Source, Token,
};
use crate::runtime::enums::describe;
use crate::runtime::settings;
use crate::sys::{memory::buf::Addr, os::dl, sync::lock::Mutex};
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::path::Path;

/// Descriptor of a kernel: `struct dtl_kernel_entry_` of dtl_kernel.h. The name of the exported
/// symbol, dtl_kernel_VERSION_NAME, also contains the version.
#[repr(C)]
struct KernelEntry {
    version: u32,
    count: u32,
    run: Option<extern "C" fn(*const dtl_kernel_context_t, *const *const c_void) -> dtl_status_t>,
    sizes: [u64; 16],
}

const VERSION: u32 = 1;

/// Modules that the runtime has not released, keyed by token.
#[derive(Default)]
pub(super) struct HostModules(Mutex<Loaded>);

#[derive(Default)]
struct Loaded {
    last: usize,
    objects: HashMap<usize, dl::SharedObject>,
}

impl HostModules {
    /// Loads a compiled object and stores it as a module. Copies the compiler's messages to `log`.
    fn load(&self, entry: &CachedObject, log: &mut String) -> Result<Token> {
        let object = load(&entry.object)?;
        log.clone_from(&entry.log);
        let mut loaded = self.0.lock();
        loaded.last += 1;
        let number = loaded.last;
        loaded.objects.insert(number, object);
        Ok(Addr::new(std::ptr::without_provenance_mut(number)))
    }
}

impl Modules for HostModules {
    fn compile(&self, _device: i32, source: &Source, log: &mut String) -> Result<Token> {
        if source.language != 0 && source.language != DTL_LANGUAGE_C {
            return fail!(
                DTL_ERROR_NOT_SUPPORTED,
                "backend host does not compile language {}: give it DTL_LANGUAGE_C, or 0 with \
                 dtl_kernel.h",
                describe(source.language)
            );
        }
        if dl::is_privileged() {
            return fail!(
                DTL_ERROR_UNAVAILABLE,
                "this program runs with raised privileges: it starts no compiler and loads nothing \
                 from a folder of its user's; use dtl_kernel_from_function"
            );
        }
        let settings = settings::current().compiler;
        let compiler = Compiler::find(&settings)?;
        let cache = KernelCache::open(settings.cache.as_deref(), OBJECT)?;
        let inputs = compiler.inputs(source)?;
        // A cached object cannot be loaded if it was damaged or another process removed it
        // meanwhile; then the source is compiled again.
        if let Some(entry) = cache.find(inputs.bytes())? {
            if let Ok(module) = self.load(&entry, log) {
                return Ok(module);
            }
        }
        let entry = cache.make(inputs.bytes(), |folder| compiler.make(source, folder, log))?;
        self.load(&entry, log)
    }

    fn destroy(&self, module: Token) -> Result<()> {
        self.0.lock().objects.remove(&module.get());
        Ok(())
    }

    fn kernel(&self, module: Token, wanted: KernelQuery<'_>) -> Result<FoundKernel> {
        let name = wanted.name;
        let symbol = CString::new(format!("dtl_kernel_{VERSION}_{name}")).unwrap_or_default();
        let found =
            self.0.lock().objects.get(&module.get()).and_then(|object| object.symbol(&symbol));
        let Some(address) = found else {
            return fail!(
                DTL_ERROR_NOT_FOUND,
                "it has no kernel '{name}': write it as DTL_KERNEL({name}, (type, name), …) with \
                 dtl_kernel.h"
            );
        };
        // SAFETY: dtl_kernel.h defines every symbol of this name as a constant of this type, and
        // the object is never unloaded.
        let entry = unsafe { &*address.ptr().cast::<KernelEntry>() };
        let sizes = entry.sizes.get(..entry.count as usize);
        match (entry.version, entry.run, sizes) {
            (VERSION, Some(run), Some(sizes)) => {
                Ok((Compiled::Blocks(run as KernelFn), Some(sizes.to_vec())))
            }
            _ => fail!(
                DTL_ERROR_NOT_FOUND,
                "what it calls kernel '{name}' was not made by DTL_KERNEL of this library's \
                 dtl_kernel.h"
            ),
        }
    }

    fn kernel_destroy(&self, _kernel: Token) -> Result<()> {
        Ok(()) // host kernels are `Compiled::Blocks`, without a token
    }

    fn launch(&self, _stream: Token, _kernel: Token, _launch: &ModuleLaunch<'_>) -> Result<()> {
        fail!(DTL_ERROR_NOT_SUPPORTED, "the host has no streams of its own")
    }
}

fn load(object: &Path) -> Result<dl::SharedObject> {
    // SAFETY: the object was compiled from the caller's source, in a folder to which only this user
    // can write. The caller intends the code to run.
    let opened = unsafe { dl::SharedObject::open(object) };
    opened.map_err(|why| {
        if why.contains("undefined symbol") {
            let text = format!(
                "the source uses what it has not: {why}; link its library (options \
                such as -lfoo)"
            );
            return Error::new(DTL_ERROR_COMPILE_FAILED, text);
        }
        let text = format!(
            "what the compiler made cannot be loaded: {why}; if the folder forbids programs \
             (noexec), set DTL_CACHE_DIR to another"
        );
        Error::new(DTL_ERROR_UNAVAILABLE, text)
    })
}
