//! Kernels from source: tokens to what `program` has.

use super::OpenCl;
use super::kernel::Kernel;
use super::program::Program;
use crate::error::{Result, fail};
use crate::runtime::backend::{Compiled, ModuleLaunch, Modules, Source, Token, Wanted};
use crate::runtime::exec::signature;
use crate::sys::buf::Addr;
use std::sync::Arc;

/// The program of a token.
fn program<'a>(token: Token) -> &'a Arc<Program> {
    // SAFETY: a token of `compile`, which the runtime uses only until it destroys the module.
    unsafe { &*token.ptr().cast::<Arc<Program>>() }
}

fn token<T>(object: T) -> Token {
    Addr::new(Box::into_raw(Box::new(object)).cast())
}

impl Modules for Arc<OpenCl> {
    fn compile(&self, device: i32, source: &Source, log: &mut String) -> Result<Token> {
        Program::compile(&*self.driver.get()?, device, source, log)
            .map(|program| token(Arc::new(program)))
    }

    fn destroy(&self, module: Token) -> Result<()> {
        // SAFETY: a token of `compile`, destroyed once and used no more.
        drop(unsafe { Box::from_raw(module.ptr().cast::<Arc<Program>>()) });
        Ok(())
    }

    fn kernel(&self, module: Token, wanted: Wanted<'_>) -> Result<(Compiled, Option<Vec<u64>>)> {
        let pointers = wanted.signature.map(signature::pointers).transpose()?;
        let (kernel, sizes) = Kernel::find(program(module), wanted.name, pointers)?;
        Ok((Compiled::Own(token(kernel)), Some(sizes)))
    }

    fn kernel_destroy(&self, kernel: Token) -> Result<()> {
        // SAFETY: a token of `kernel`, destroyed once and used no more.
        drop(unsafe { Box::from_raw(kernel.ptr().cast::<Kernel>()) });
        Ok(())
    }

    fn launch(&self, stream: Token, kernel: Token, launch: &ModuleLaunch<'_>) -> Result<()> {
        // SAFETY: a token of `kernel`, which the runtime uses only until it destroys the kernel.
        let kernel = unsafe { &*kernel.ptr().cast::<Kernel>() };
        let lane = self.lane(stream)?;
        let (compiled, here) = (kernel.device(), lane.queue().device);
        if compiled != here {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "kernel '{}' was compiled for device {compiled} and the stream is of device \
                 {here}: compile its source \
                 for that one, too",
                kernel.shown
            );
        }
        lane.launch(kernel, launch)
    }
}
