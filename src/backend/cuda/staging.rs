//! Page-locked host buffers through which messages in device memory are staged (`staging_pool`).

use super::driver::CudaDriver;
use super::symbols::*;
use crate::runtime::component::StagingBuffer;
use std::sync::Arc;

/// Returns a staging buffer of `len` bytes; `None` if there is none.
pub(super) fn lend(driver: &Arc<CudaDriver>, len: usize) -> Option<Box<dyn StagingBuffer>> {
    let register = driver.cuda.cuMemHostRegister_v2?;
    driver.cuda.cuMemHostUnregister?;
    driver.staging.lend(len, |region| {
        let _inside = driver.enter_any()?;
        let (at, flags) = (region.addr().ptr(), CU_MEMHOSTREGISTER_PORTABLE);
        // SAFETY: the memory consists of whole pages and remains allocated until it is
        // unregistered.
        (unsafe { register(at, region.len(), flags) } == CUDA_SUCCESS).then_some(())
    })
}

/// Unregisters and frees all buffers that are not in use.
pub(super) fn trim(driver: &CudaDriver) {
    let Some(unregister) = driver.cuda.cuMemHostUnregister else { return };
    if driver.staging.is_empty() {
        return;
    }
    let _inside = driver.enter_any();
    driver.staging.trim(|region| {
        // SAFETY: the buffer was registered and is unregistered once. No copy uses it.
        let code = unsafe { unregister(region.addr().ptr()) };
        code == CUDA_SUCCESS
    });
}
