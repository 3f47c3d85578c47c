//! Modules and kernels of a driver backend. The runtime identifies them by tokens, which point to
//! objects of the backend.

use super::{DeviceBackend, Driver, Kernel, Module, stream_of, token};
use crate::error::Result;
use crate::runtime::component::{
    Compiled, FoundKernel, KernelQuery, ModuleLaunch, Modules, Source, Token,
};
use std::sync::Arc;

type KernelOf<D> = <<D as Driver>::Module as Module<D>>::Kernel;

impl<D: Driver> Modules for Arc<DeviceBackend<D>> {
    fn compile(&self, device: i32, source: &Source, log: &mut String) -> Result<Token> {
        D::Module::compile(&self.driver.get()?, device, source, log).map(token)
    }

    fn destroy(&self, module: Token) -> Result<()> {
        // SAFETY: `compile` returned the token. The runtime destroys the module once and does not
        // use the token again.
        unsafe { Box::from_raw(module.ptr().cast::<D::Module>()) }.unload()
    }

    fn kernel(&self, module: Token, wanted: KernelQuery<'_>) -> Result<FoundKernel> {
        // SAFETY: `compile` returned the token, and the runtime uses the token only until it
        // destroys the module.
        let module = unsafe { &*module.ptr().cast::<D::Module>() };
        module.kernel(wanted).map(|(kernel, sizes)| (Compiled::Own(token(kernel)), sizes))
    }

    fn kernel_destroy(&self, kernel: Token) -> Result<()> {
        // SAFETY: `kernel` returned the token. The runtime destroys the kernel once and does not
        // use the token again.
        drop(unsafe { Box::from_raw(kernel.ptr().cast::<KernelOf<D>>()) });
        Ok(())
    }

    fn launch(&self, stream: Token, kernel: Token, launch: &ModuleLaunch<'_>) -> Result<()> {
        // SAFETY: `kernel` returned the token, and the runtime uses the token only until it
        // destroys the kernel.
        let kernel = unsafe { &*kernel.ptr().cast::<KernelOf<D>>() };
        kernel.launch(stream_of(stream), launch)
    }
}
