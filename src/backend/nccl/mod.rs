//! Communicator kind "nccl": NCCL executes collectives on the memory of NVIDIA devices. A
//! communicator of this kind supplements a communicator of another kind, which transfers messages.
//! The first request for this kind loads NCCL.
//!
//! In reading order:
//! - `nccl_sys`: declarations of nccl.h
//! - `symbols`: functions of NCCL
//! - `errors`: error codes
//! - `discovery`: opens the library
//! - `comm`: one rank of a communicator
//! - `collectives`: collectives

#![allow(non_upper_case_globals, reason = "constants have NCCL's names, in patterns too")]

mod collectives;
mod comm;
pub mod discovery;
pub mod errors;
#[rustfmt::skip]
pub mod nccl_sys;
pub mod symbols;

use self::discovery::Nccl;
use super::cuda::Cuda;
use super::cuda::external_stream::ExternalStream;
use crate::abi::comm::communicator::{DTL_COMM_DETERMINISTIC, DTL_COMM_STAGE};
use crate::backend::vendor_lib::OnDemand;
use crate::error::{Result, fail};
use crate::runtime::component::{
    Availability, BackendProbe, Comm, DeviceComm, DeviceComms, OpenArgs, Transport,
};
use crate::runtime::registry::Backend;
use comm::NcclComm;
use std::sync::Arc;

/// Opens NCCL communicators; loads NCCL at first use.
struct NcclOpener {
    /// Backend whose memory the collectives accept.
    devices: Arc<Backend>,
    cuda: Arc<Cuda>,
    nccl: OnDemand<Nccl>,
}

/// Creates the backend "nccl" for memory of the backend `devices`, whose driver is `cuda`.
pub fn backend(devices: Arc<Backend>, cuda: Arc<Cuda>) -> Backend {
    let opener = Arc::new(NcclOpener { devices, cuda, nccl: OnDemand::new(discovery::find) });
    let mut backend = Backend::new(c"nccl", i32::MIN, true, Box::new(Arc::clone(&opener)));
    backend.comm = Some(Box::new(opener));
    backend
}

impl BackendProbe for Arc<NcclOpener> {
    fn available(&self) -> Availability {
        self.devices.availability().map_err(|why| format!("backend cuda: {why}"))?;
        self.nccl.look().map(drop)
    }
}

impl Comm for Arc<NcclOpener> {
    fn flags(&self) -> u64 {
        DTL_COMM_DETERMINISTIC | DTL_COMM_STAGE
    }

    fn open(&self, _args: &OpenArgs) -> Result<Box<dyn Transport>> {
        fail!(
            DTL_ERROR_NOT_SUPPORTED,
            "kind \"nccl\" has collectives only: open it over another communicator"
        )
    }

    fn device_comms(&self) -> Option<&dyn DeviceComms> {
        Some(self)
    }
}

impl DeviceComms for Arc<NcclOpener> {
    fn prepare(&self) -> Result<Box<dyn DeviceComm>> {
        let nccl = self.nccl.get()?;
        let queue = ExternalStream::create(&self.cuda, None)?;
        Ok(Box::new(NcclComm::new(nccl, Arc::clone(&self.cuda), Arc::clone(&self.devices), queue)))
    }
}
