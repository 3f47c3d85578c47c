//! Kernels from source: what compiles it, and what comes out.

use super::Token;
use crate::abi::devices::exec::{dtl_kernel_context_t, dtl_launch_t};
use crate::abi::status::dtl_status_t;
use crate::abi::word::dtl_enum_word_t;
use crate::error::{Result, fail};
use crate::sys::memory::buf::Addr;
use std::ffi::{CString, c_void};

/// Source, or a binary, taken over from the caller.
pub struct Source {
    /// DTL_LANGUAGE_...; 0 = the backend's own.
    pub language: dtl_enum_word_t,
    /// The bytes and a NUL behind them.
    text: Vec<u8>,
    /// Options for the compiler.
    pub options: Vec<CString>,
    /// Its name in messages.
    pub name: CString,
    /// Files that come with it.
    pub files: Vec<SourceFile>,
    /// What a linker is to add: paths, or names as after -l.
    pub libraries: Vec<String>,
}

/// A file that comes with a source.
pub struct SourceFile {
    /// Name under which `#include` finds it.
    pub name: String,
    /// Contents of the file.
    pub text: CString,
}

impl Source {
    /// Source of some bytes (at least one).
    #[must_use]
    pub fn new(
        language: dtl_enum_word_t,
        bytes: &[u8],
        options: Vec<CString>,
        name: CString,
    ) -> Self {
        let text = bytes.iter().copied().chain([0]).collect();
        Source { language, text, options, name, files: Vec::new(), libraries: Vec::new() }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.text.split_last().map_or(&[], |(_, bytes)| bytes)
    }

    /// Refuses files for what is compiled already.
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

    /// The bytes and the NUL behind them.
    #[must_use]
    pub fn terminated(&self) -> &[u8] {
        &self.text
    }
}

/// A kernel's function, never NULL.
pub type KernelFn =
    extern "C" fn(*const dtl_kernel_context_t, *const *const c_void) -> dtl_status_t;

/// A kernel of a module.
pub enum Compiled {
    /// Host code that does a whole block at each call, on the library's own threads.
    Blocks(KernelFn),
    /// The backend's own, for `launch`.
    Own(Token),
}

/// Name of a kernel, and its argument types if given, in the form that `dtl_kernel_get` takes.
#[derive(Clone, Copy)]
pub struct KernelQuery<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its argument types.
    pub signature: Option<&'a str>,
}

/// What is launched, and over what.
pub struct ModuleLaunch<'a> {
    /// Grid and block.
    pub shape: &'a dtl_launch_t,
    /// Address of each argument.
    pub args: &'a [Addr],
    /// Size of each argument in bytes.
    pub sizes: &'a [u64],
}

/// Compilers. Any thread, several at once; a backend that gives kernels of its own has streams of
/// its own.
pub trait Modules: Send + Sync {
    /// Compiles for a device; the compiler's messages go to `log` whatever comes out.
    fn compile(&self, device: i32, source: &Source, log: &mut String) -> Result<Token>;
    /// Ends a module; its kernels have ended before.
    fn destroy(&self, module: Token) -> Result<()>;
    /// Finds a kernel, and the sizes of its arguments if the module records them; 0 = unknown.
    fn kernel(
        &self,
        module: Token,
        wanted: KernelQuery<'_>,
    ) -> Result<(Compiled, Option<Vec<u64>>)>;
    /// Ends a kernel of its own.
    fn kernel_destroy(&self, kernel: Token) -> Result<()>;
    /// Queues a kernel of its own on one of its own streams.
    fn launch(&self, stream: Token, kernel: Token, launch: &ModuleLaunch<'_>) -> Result<()>;
}
