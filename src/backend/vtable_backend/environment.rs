//! Adapter from the C functions of an environment (external prerequisite that is started once for
//! all its users) to [`Calls`].

use super::{begin, foreign_error};
use crate::abi::backend::environment::*;
use crate::abi::status::DTL_SUCCESS;
use crate::error::Result;
use crate::from_c::text_in;
use crate::runtime::environment::Calls;
use crate::sys::memory::buf::Addr;

struct NativeCalls {
    probe: dtl_environment_probe_fn_t,
    init: dtl_environment_init_fn_t,
    finalize: dtl_environment_finalize_fn_t,
    user: Addr,
}

/// Wraps the functions of an environment's C descriptor.
pub fn environment_calls(desc: &dtl_environment_desc_t) -> Box<dyn Calls> {
    let &dtl_environment_desc_t { probe, init, finalize, user, .. } = desc;
    Box::new(NativeCalls { probe, init, finalize, user: Addr::new(user) })
}

impl NativeCalls {
    fn run(&self, who: &str, function: dtl_environment_init_fn_t, state: Addr) -> Result<()> {
        let Some(function) = function else { return Ok(()) };
        let before = begin();
        // SAFETY: the author of the environment guarantees the header's contract for the function,
        // and `state` is a block of the requested size.
        match unsafe { function(self.user.ptr(), state.ptr()) } {
            DTL_SUCCESS => Ok(()),
            status => Err(foreign_error(who, status, before)),
        }
    }
}

impl Calls for NativeCalls {
    fn probe(&self) -> Result<()> {
        let Some(probe) = self.probe else { return Ok(()) };
        let mut why = [0_u8; 512];
        let room = why.len() as u64 - 1; // the function cannot overwrite the final NUL
        let before = begin();
        // SAFETY: the author of the environment guarantees the header's contract for the function,
        // and the buffer has the passed size.
        let status = unsafe { probe(self.user.ptr(), why.as_mut_ptr().cast(), room) };
        if status == DTL_SUCCESS {
            return Ok(());
        }
        let why = text_in(&why);
        if !why.is_empty() {
            super::set_error_text(why);
        }
        Err(foreign_error("its probe", status, before))
    }

    fn init(&self, state: Addr) -> Result<()> {
        self.run("its init", self.init, state)
    }

    fn finalize(&self, state: Addr) -> Result<()> {
        self.run("its finalize", self.finalize, state)
    }

    fn identity(&self) -> [usize; 4] {
        [
            self.probe.map_or(0, |function| function as usize),
            self.init.map_or(0, |function| function as usize),
            self.finalize.map_or(0, |function| function as usize),
            self.user.get(),
        ]
    }
}
