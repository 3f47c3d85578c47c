//! Compilation of kernels from source code, and launch of the kernels of a compiled module.

use super::Token;
use crate::abi::devices::exec::{dtl_kernel_context_t, dtl_launch_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::dtl_enum_word_t;
use crate::error::{Result, fail};
use crate::sys::memory::buf::Addr;
use std::ffi::{CStr, CString, c_void};

/// Name under which every source may include [`KERNEL_HEADER`].
pub const KERNEL_HEADER_NAME: &CStr = c"dtl_kernel.h";
/// Text of the header dtl_kernel.h.
pub const KERNEL_HEADER: &CStr = {
    let text = concat!(include_str!("../../../include/dtl_kernel.h"), "\0");
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"#error \"dtl_kernel.h contains a NUL\"",
    }
};

/// Kernel source code or a binary, copied from the caller.
pub struct Source {
    /// DTL_LANGUAGE_ constant; 0 = the backend's default language.
    pub language: dtl_enum_word_t,
    /// Bytes of the source and a terminating NUL.
    text: Vec<u8>,
    /// Compiler options.
    pub options: Vec<CString>,
    /// Name of the source in compiler messages.
    pub name: CString,
    /// Files that the source can include.
    pub files: Vec<SourceFile>,
    /// Libraries for the linker: paths, or names as in the linker option `-lNAME`.
    pub libraries: Vec<String>,
}

/// File that a source can include.
pub struct SourceFile {
    /// Name under which `#include` finds the file.
    pub name: String,
    /// Contents of the file.
    pub text: CString,
}

impl Source {
    /// Creates a source from `bytes` (at least one byte).
    pub fn new(
        language: dtl_enum_word_t,
        bytes: &[u8],
        options: Vec<CString>,
        name: CString,
    ) -> Self {
        let text = bytes.iter().copied().chain([0]).collect();
        Source { language, text, options, name, files: Vec::new(), libraries: Vec::new() }
    }

    /// Returns the bytes of the source, without the terminating NUL.
    pub fn bytes(&self) -> &[u8] {
        self.text.split_last().map_or(&[], |(_, bytes)| bytes)
    }

    /// Fails with INVALID_ARGUMENT if the source has include files. Called for input that is
    /// already compiled. `what` names the input in the error message.
    pub fn refuse_files(&self, what: &str) -> Result<()> {
        match self.files.first() {
            Some(file) => fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "file {:?}: {what} is compiled already, it includes none",
                file.name
            ),
            None => Ok(()),
        }
    }

    /// Returns the bytes of the source and the terminating NUL.
    pub fn terminated(&self) -> &[u8] {
        &self.text
    }
}

/// C function that implements a kernel, never NULL.
pub type KernelFn =
    extern "C" fn(*const dtl_kernel_context_t, *const *const c_void) -> dtl_status_t;

/// Kernel of a compiled module.
pub enum Compiled {
    /// Host function that executes one whole block of the grid per call, on the library's own
    /// threads.
    Blocks(KernelFn),
    /// Backend-private kernel, which [`Modules::launch`] queues.
    Own(Token),
}

/// Kernel of a compiled module, and the sizes of the kernel's arguments in bytes if the module
/// records them. A size of 0 means that the size is unknown.
pub type FoundKernel = (Compiled, Option<Vec<u64>>);

/// Name of a kernel, and optionally its argument types in the format of `dtl_kernel_get`.
#[derive(Clone, Copy)]
pub struct KernelQuery<'a> {
    /// Name of the kernel.
    pub name: &'a str,
    /// Argument types of the kernel; `None` if the caller did not pass them.
    pub signature: Option<&'a str>,
}

/// Launch of a module's kernel: dimensions and arguments.
pub struct ModuleLaunch<'a> {
    /// Grid and block dimensions.
    pub shape: &'a dtl_launch_t,
    /// Address of each kernel argument.
    pub args: &'a [Addr],
    /// Size of each kernel argument in bytes.
    pub sizes: &'a [u64],
}

/// Compilation and launch of kernels by a backend. Several threads may call the methods at once. A
/// backend that returns [`Compiled::Own`] kernels must have native streams.
pub trait Modules: Send + Sync {
    /// Compiles `source` for `device`. Appends the compiler's messages to `log`, also on failure.
    fn compile(&self, device: i32, source: &Source, log: &mut String) -> Result<Token>;
    /// Destroys a module. The caller must already have destroyed the kernels of the module.
    fn destroy(&self, module: Token) -> Result<()>;
    /// Returns a kernel of the module.
    fn kernel(&self, module: Token, wanted: KernelQuery<'_>) -> Result<FoundKernel>;
    /// Destroys a [`Compiled::Own`] kernel.
    fn kernel_destroy(&self, kernel: Token) -> Result<()>;
    /// Queues a [`Compiled::Own`] kernel on a native stream of the backend.
    fn launch(&self, stream: Token, kernel: Token, launch: &ModuleLaunch<'_>) -> Result<()>;
}
