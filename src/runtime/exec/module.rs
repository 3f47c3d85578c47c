//! Modules: compiled source code, and the kernels that it contains.
//!
//! A kernel holds a reference to its module, so the two may be destroyed in any order. The backend
//! provides the compiler.

use super::kernel::{Code, Kernel};
use super::signature::{self, Argument};
use crate::abi::word::*;
use crate::error::{Result, fail, failure};
use crate::runtime::component::{Compiled, KernelQuery, ModuleLaunch, Modules, Source, Token};
use crate::runtime::environment;
use crate::runtime::log;
use crate::runtime::registry::Backend;
use crate::runtime::trace::{self, Args};
use crate::sys::memory::buf::Addr;
use std::ffi::CString;
use std::sync::Arc;

/// Compiled source.
pub struct Module {
    backend: Arc<Backend>,
    device: i32,
    token: Token,
    name: String,
    /// Output of the compiler.
    pub log: String,
    /// References to the environments (see `runtime::environment`) with which the source was
    /// compiled. The compiled code may use these environments.
    _environments: environment::EnvironmentRefs,
}

impl Module {
    /// Compiles a source for a device. Stores the compiler's output in `log` on failure, in the
    /// module on success.
    pub fn compile(
        backend: Arc<Backend>,
        device: i32,
        source: &mut Source,
        needs: &[environment::Requirement],
        log: &mut String,
    ) -> Result<Self> {
        trace::about(|| {
            Args::NONE.what(format_args!(
                "{} for {}",
                source.name.to_string_lossy(),
                backend.name()
            ))
        });
        let modules = modules_of(&backend)?;
        let (held, lists) = environment::for_source(needs)?;
        if !is_compiled(source.language) {
            // A string from C contains no NUL byte.
            let option = |folder: &String| CString::new(format!("-I{folder}")).unwrap_or_default();
            source.options.extend(lists.headers.iter().map(option));
        }
        source.libraries = lists.libraries;
        let token = modules.compile(device, source, log)?;
        let name = source.name.to_string_lossy().into_owned();
        let log = std::mem::take(log);
        Ok(Module { backend, device, token, name, log, _environments: held })
    }

    /// Finds a kernel of the module. Fails if the signature in the query does not match the
    /// kernel's arguments in the source.
    pub fn kernel(self: &Arc<Self>, wanted: KernelQuery<'_>) -> Result<Kernel> {
        let declared = wanted.signature.map(signature::parse).transpose()?;
        let (compiled, known) = modules_of(&self.backend)?
            .kernel(self.token, wanted)
            .map_err(|error| error.within(&format!("module '{}'", self.name)))?;
        let (own, code) = match compiled {
            Compiled::Own(token) => (Some(token), None),
            Compiled::Blocks(function) => {
                (None, Some(Code { function, user: Addr::NULL, is_whole_block: true }))
            }
        };
        // From here on the drop of `part` destroys the backend's kernel, even if a check below
        // fails.
        let mut part = ModuleKernel {
            module: Arc::clone(self),
            own,
            name: wanted.name.to_owned(),
            arguments: None,
        };
        if let (Some(declared), Some(known)) = (&declared, &known) {
            signature::fit(wanted.name, declared, known)?;
        }
        let sizes = || known.map(|sizes| sizes.into_iter().map(Argument::of_size).collect());
        part.arguments = declared.or_else(sizes);
        Ok(Kernel { backend: Arc::clone(&self.backend), code, part: Some(part) })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let ended = modules_of(&self.backend).and_then(|modules| modules.destroy(self.token));
        log::failure("destroying a module", ended);
    }
}

/// Returns true if `language` denotes compiled code (binary, PTX or SPIR-V). Compiled code includes
/// no headers.
fn is_compiled(language: dtl_enum_word_t) -> bool {
    [DTL_LANGUAGE_BINARY, DTL_LANGUAGE_PTX, DTL_LANGUAGE_SPIRV].contains(&language)
}

fn modules_of(backend: &Backend) -> Result<&dyn Modules> {
    backend.modules.as_deref().ok_or_else(|| {
        failure!(
            DTL_ERROR_NOT_SUPPORTED,
            "backend '{}' compiles no source; make kernels from functions \
             (dtl_kernel_from_function), or take a backend that supports \"modules\"",
            backend.name()
        )
    })
}

/// Reference from a kernel to its module, which stays alive as long as the kernel.
pub struct ModuleKernel {
    module: Arc<Module>,
    /// Backend-private pointer to the kernel; `None` if the kernel is host code. The backend's
    /// kernel is destroyed together with this object.
    own: Option<Token>,
    name: String,
    arguments: Option<Vec<Argument>>,
}

impl ModuleKernel {
    /// Returns the name of the kernel in the source.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Fails if the kernel cannot be launched on a stream of `device`, because its module was
    /// compiled for another one, or if the argument sizes of the launch differ from the known sizes
    /// of the kernel.
    pub fn check(&self, device: i32, sizes: &[u64]) -> Result<()> {
        let compiled = self.module.device;
        if device != compiled {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "kernel '{}' was compiled for device {compiled} and the stream is of device \
                 {device}: compile its source for that one, too",
                self.name
            );
        }
        let Some(arguments) = &self.arguments else { return Ok(()) };
        signature::check(&self.name, arguments, sizes)
    }

    /// Queues the backend's kernel on a stream of the backend.
    pub fn launch(&self, stream: Token, launch: &ModuleLaunch<'_>) -> Result<()> {
        match self.own {
            Some(own) => modules_of(&self.module.backend)?.launch(stream, own, launch),
            None => fail!(DTL_ERROR_INTERNAL, "kernel '{}' is not its backend's", self.name),
        }
    }
}

impl Drop for ModuleKernel {
    fn drop(&mut self) {
        let Some(own) = self.own else { return };
        let ended =
            modules_of(&self.module.backend).and_then(|modules| modules.kernel_destroy(own));
        log::failure("destroying a kernel", ended);
    }
}
