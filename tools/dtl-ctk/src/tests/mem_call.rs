//! Memory for the tests that call `mem_supports`, `mem_register` and `mem_deregister` of a comm
//! table directly: allocations, their registrations, and messages between them.

use crate::kit::prelude::*;
use crate::kit::slot_comm::{SlotComm, ended_well};
use crate::kit::vtables::{Vtables, slot};
use std::cell::Cell;
use std::ffi::c_void;

// Match words: each use has its own.
const MEETING: u64 = 0x31;
const PAYLOAD: u64 = 0x32;

/// Memory slots of an open communicator.
pub(crate) struct Slots<'a> {
    pub(crate) comm: &'a SlotComm,
    table: dtl_comm_vtable_t,
    own: *mut c_void,
    opened: *mut c_void,
    /// Memory that the tests use: host memory first, then the device memory of each backend that
    /// the program or a plugin has registered.
    places: Vec<Place>,
    /// True once memory was registered.
    pub(crate) has_registered: Cell<bool>,
}

/// Memory kind of a backend.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    backend: Backend,
    kind: u64,
}

/// Allocation that a test registers.
pub(crate) struct Area {
    pub(crate) block: Block,
    place: Place,
    is_direct: bool,
}

/// Registration that the transport has returned.
pub(crate) struct Registration(*mut c_void);

/// Returns the backends that the library does not contain and that have memory here.
fn registered_backends() -> Outcome<Vec<Backend>> {
    let count = output!(0, dtl_backend_count())?;
    let mut found = Vec::new();
    for index in 0..count {
        let backend = Backend { handle: output!(DTL_BACKEND_NULL, dtl_backend_at(index))? };
        let info = backend.info()?;
        let has_memory = info.components & DTL_COMPONENT_MEMORY != 0;
        if info.is_builtin == 0 && has_memory && backend.available()?.is_ok() {
            found.push(backend);
        }
    }
    Ok(found)
}

impl<'a> Slots<'a> {
    /// Skips the test if the comm table has no memory slots.
    pub(crate) fn of(comm: &'a SlotComm) -> Outcome<Slots<'a>> {
        let (table, own, opened) = comm.bare();
        if table.mem_supports.is_none() {
            skip!("the comm table has no mem_supports, mem_register and mem_deregister");
        }
        let host = Place { backend: Backend::find("host")?, kind: DTL_MEMORY_HOST };
        let device = |backend| Place { backend, kind: DTL_MEMORY_DEVICE };
        let mut places = vec![host];
        for backend in registered_backends()? {
            if optional(backend.alloc(DTL_MEMORY_DEVICE, 64, 0))?.is_some() {
                places.push(device(backend));
            }
        }
        Ok(Slots { comm, table, own, opened, places, has_registered: Cell::new(false) })
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = Place> + use<> {
        self.places.clone().into_iter()
    }

    /// Runs a part of a test in each place. Skips the test if `mem_supports` returns
    /// DTL_COMM_MEM_ADDRESS for none of them: then the parts have used memory that is not
    /// registered, because the result may differ between ranks, and all ranks take the same steps.
    pub(crate) fn each_place(&self, part: impl Fn(Place) -> Outcome) -> Outcome {
        self.places().try_for_each(part)?;
        self.if_registered()
    }

    pub(crate) fn if_registered(&self) -> Outcome {
        if !self.has_registered.get() {
            skip!("mem_supports returns DTL_COMM_MEM_ADDRESS for no memory of this test");
        }
        Ok(())
    }

    /// Returns the result of `mem_supports`.
    pub(crate) fn supports(&self, info: &dtl_mem_info_t) -> Outcome<i32> {
        let Some(supports) = self.table.mem_supports else { skip!("there is no mem_supports") };
        let (name, info, mut way) = ("comm.mem_supports", ptr::from_ref(info), -1);
        let status = slot!(self, name, supports(self.opened, info, &raw mut way));
        Vtables::check(name, status)?;
        let is_known = (DTL_COMM_MEM_STAGED..=DTL_COMM_MEM_DMABUF).contains(&way);
        ensure!(
            is_known,
            "{name} wrote {way}: use DTL_COMM_MEM_STAGED, DTL_COMM_MEM_ADDRESS or \
             DTL_COMM_MEM_DMABUF"
        );
        Ok(way)
    }

    /// Allocates memory. If the transport does not take memory of this place by its address, it is
    /// host memory, which is not registered.
    pub(crate) fn area(&self, place: Place, size: u64) -> Outcome<Area> {
        let area = |place: Place| -> Outcome<Area> {
            let block = place.backend.alloc(place.kind, size, 0)?;
            Ok(Area { block, place, is_direct: false })
        };
        let wanted = area(place)?;
        if self.supports(&wanted.info())? == DTL_COMM_MEM_ADDRESS {
            return Ok(Area { is_direct: true, ..wanted });
        }
        area(self.places[0])
    }

    /// Calls `mem_register`. Returns its status, and the registration that it wrote.
    pub(crate) fn try_register(&self, info: &dtl_mem_info_t) -> Outcome<Result<Registration, i32>> {
        let Some(register) = self.table.mem_register else { skip!("there is no mem_register") };
        let (name, info, mut made) = ("comm.mem_register", ptr::from_ref(info), ptr::null_mut());
        let status = slot!(self, name, register(self.opened, info, -1, 0, &raw mut made));
        if status != DTL_SUCCESS {
            return Ok(Err(status));
        }
        ensure!(!made.is_null(), "{name} wrote NULL into out_reg: the library deregisters by it");
        self.has_registered.set(true);
        Ok(Ok(Registration(made)))
    }

    /// Registers a part of an area; `None` if the area is not registered on this rank.
    pub(crate) fn register(
        &self,
        area: &Area,
        at: u64,
        size: u64,
    ) -> Outcome<Option<Registration>> {
        if !area.is_direct {
            return Ok(None);
        }
        match self.try_register(&area.part(at, size))? {
            Ok(made) => Ok(Some(made)),
            Err(status) => {
                let what = format!("comm.mem_register of {size} bytes at offset {at}");
                Vtables::check(&what, status).map(|()| None)
            }
        }
    }

    pub(crate) fn register_all(&self, area: &Area) -> Outcome<Option<Registration>> {
        self.register(area, 0, area.block.size)
    }

    pub(crate) fn deregister(&self, registration: Option<Registration>) -> Outcome {
        let Some(Registration(made)) = registration else { return Ok(()) };
        let Some(end) = self.table.mem_deregister else { skip!("there is no mem_deregister") };
        let name = "comm.mem_deregister";
        Vtables::check(name, slot!(self, name, end(self.opened, made)))
    }

    /// Starts a send of `size_bytes` to the next rank, or a receive from the previous one.
    fn start(&self, name: &str, begin: impl Fn(*mut u64) -> dtl_status_t) -> Outcome<u64> {
        let (start, mut id) = (Instant::now(), 0);
        loop {
            match begin(&raw mut id) {
                DTL_ERROR_BUSY => self.comm.pause(start, || format!("{name} is always busy"))?,
                status => return Vtables::check(name, status).map(|()| id),
            }
        }
    }

    fn wait(&self, id: u64, what: &str) -> Outcome {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.comm.collective_status(id)? {
                return ended_well(what, status);
            }
            self.comm.pause(begin, || format!("comm.test has not completed {what}"))?;
        }
    }

    /// Sends `size` bytes at offset `from` of `out` to the next rank, receives as many at offset
    /// `to` of `into` from the previous one, and compares both areas completely. `key` selects the
    /// contents, which differ between ranks.
    pub(crate) fn moves(
        &self,
        (out, from): (&Area, u64),
        (into, to): (&Area, u64),
        size: u64,
        key: u64,
    ) -> Outcome {
        let Some(isend) = self.table.isend else { skip!("the comm table has no isend") };
        let Some(irecv) = self.table.irecv else { skip!("the comm table has no irecv") };
        let (next, previous) = (self.comm.next(), self.comm.previous());
        let bytes = |rank: i32| pattern(key << 8 | rank as u64, size);
        let send_before = framed(out.block.size, 0x5A, from, &bytes(self.comm.rank));
        out.block.write(0, &send_before)?;
        into.block.write(0, &vec![0xA5; into.block.size as usize])?;
        let (source, target) = (out.block.at(from).cast_const(), into.block.at(to));
        let receive = self.start("comm.irecv", |id| {
            let opened = self.opened;
            slot!(self, "comm.irecv", irecv(opened, target, size, previous, PAYLOAD, 0, id))
        })?;
        self.comm.meet(MEETING)?;
        let send = self.start("comm.isend", |id| {
            slot!(self, "comm.isend", isend(self.opened, source, size, next, PAYLOAD, id))
        })?;
        let what = format!(
            "a message of {size} bytes from offset {from} of {} to offset {to} of {}",
            out.text(),
            into.text()
        );
        self.wait(receive, &what)?;
        self.wait(send, &what)?;
        let should = framed(into.block.size, 0xA5, to, &bytes(previous));
        same!(&into.block.all()?, &should, "{what}, the receiver's memory: {}")?;
        same!(&out.block.all()?, &send_before, "{what}, the sender's memory: {}")
    }
}

/// Returns `size` bytes: `middle` at offset `at`, and `rest` around it.
fn framed(size: u64, rest: u8, at: u64, middle: &[u8]) -> Vec<u8> {
    let mut all = vec![rest; size as usize];
    all[at as usize..][..middle.len()].copy_from_slice(middle);
    all
}

impl Area {
    /// Describes the whole area, as the library does.
    pub(crate) fn info(&self) -> dtl_mem_info_t {
        self.part(0, self.block.size)
    }

    /// Describes a part of the area, as the library does for a buffer of dtl_comm_register.
    pub(crate) fn part(&self, at: u64, size: u64) -> dtl_mem_info_t {
        dtl_mem_info_t {
            device: 0,
            backend: self.place.backend.handle,
            kind: self.place.kind,
            base: self.block.at(at),
            size_bytes: size,
            ..DTL_MEM_INFO_INIT
        }
    }

    fn text(&self) -> String {
        let way = if self.is_direct { "that is registered" } else { "that is not registered" };
        format!("{} memory {way}", kind_name(self.place.kind))
    }

    /// Returns true if the host accesses the memory by its address.
    pub(crate) fn is_host(&self) -> bool {
        self.place.kind == DTL_MEMORY_HOST
    }
}
