//! Adapter from the collective functions (`coll_*`) of a C comm table to [`WireCollectives`].

use super::call;
use super::comm::NativeWire;
use crate::abi::backend::vtable::*;
use crate::abi::handle::dtl_backend_t;
use crate::backend::p2p_protocol::WireCollectives;
use crate::error::{Result, failure};
use crate::runtime::comm::coll::{Buffer, CollCall, Kind};
use crate::runtime::component::OpId;
use crate::runtime::types;
use crate::sys::memory::buf::Region;

impl WireCollectives for NativeWire {
    fn takes(&mut self, call: &CollCall<'_>) -> Result<bool> {
        let reduction = call.args.reduction;
        if reduction.is_some_and(|by| types::builtin(by.dtype, by.op).is_none()) {
            return Ok(false); // the backend does not know the program's own
        }
        let mut yes = 0;
        with_args(call, |args| {
            call!(self.comm.coll_supports(self.object.ptr(), args, &raw mut yes))
        })?;
        self.owner.boolean("comm.coll_supports", yes)
    }

    fn start(&mut self, call: &CollCall<'_>) -> Result<OpId> {
        let mut op = 0;
        with_args(call, |args| call!(self.comm.coll_start(self.object.ptr(), args, &raw mut op)))?;
        Ok(OpId(op))
    }
}

/// Passes the arguments of a collective to `act`, as the slots expect them.
fn with_args(
    call: &CollCall<'_>,
    act: impl FnOnce(*const dtl_coll_args_t) -> Result<()>,
) -> Result<()> {
    let args = call.args;
    let (send, recv) = (Ranges::of(&args.send)?, Ranges::of(&args.recv)?);
    let (send, recv) = (send.list(), recv.list());
    let in_place = if args.in_place { DTL_COLL_IN_PLACE } else { 0 };
    let deterministic = if call.is_deterministic { DTL_COLL_DETERMINISTIC } else { 0 };
    let passed = dtl_coll_args_t {
        struct_size: size_of::<dtl_coll_args_t>() as u32,
        collective: (args.kind as i32) - (Kind::Barrier as i32),
        flags: in_place | deterministic,
        context: call.context,
        root: args.root,
        dtype: args.dtype,
        op: args.reduction.map_or(-1, |by| by.op),
        count: args.count,
        element_bytes: if args.dtype < 0 { 0 } else { types::element_size(args.dtype)? as u64 },
        send: send.as_ptr(),
        send_count: send.len() as u64,
        recv: recv.as_ptr(),
        recv_count: recv.len() as u64,
        memory_backend: call.place.map_or(dtl_backend_t { id: 0 }, |place| place.backend),
        memory_kind: call.place.map_or(0, |place| place.kind),
        memory_device: call.place.map_or(0, |place| place.device),
        reserved: 0,
    };
    act(&raw const passed)
}

/// Ranges of a buffer in C's form. A single one takes no memory.
enum Ranges {
    One([dtl_coll_range_t; 1]),
    Many(Vec<dtl_coll_range_t>),
}

impl Ranges {
    fn of(buffer: &Buffer) -> Result<Ranges> {
        let blocks = match buffer {
            Buffer::Whole(region) => return Ok(Ranges::One([range(region)])),
            Buffer::Blocks(blocks) => blocks,
        };
        let (mut list, count) = (Vec::new(), blocks.len());
        list.try_reserve_exact(count).map_err(|_| {
            failure!(DTL_ERROR_OUT_OF_MEMORY, "no memory for a list of {count} ranges")
        })?;
        list.extend(blocks.iter().map(range));
        Ok(Ranges::Many(list))
    }

    fn list(&self) -> &[dtl_coll_range_t] {
        match self {
            Ranges::One(one) => one,
            Ranges::Many(many) => many,
        }
    }
}

fn range(region: &Region) -> dtl_coll_range_t {
    dtl_coll_range_t { ptr: region.addr().ptr(), size_bytes: region.len() as u64 }
}
