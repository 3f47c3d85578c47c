//! An opened device and port: where queue pairs and registrations are made, and how much memory is
//! registered.

use super::discovery::{DeviceList, Verbs};
use super::errors::{call_failed, last_failed};
use super::functions::*;
use super::port_select::{self, GidInfo};
use super::types::*;
use crate::backend::rdma::config::{Config, Devices};
use crate::error::{Error, Result, fail};
use crate::sys::memory::buf::Region;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Access rights of registered host memory, for the peers' network cards and ours.
const ACCESS: u32 =
    ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC;

/// Access rights of registered device memory: no atomics, since it belongs to no window.
const DEVICE_ACCESS: u32 = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ;

/// An opened device and port.
pub(in crate::backend::rdma) struct Rail {
    pub(in crate::backend::rdma) calls: &'static Functions,
    pub(in crate::backend::rdma) context: *mut Context,
    pd: PdIn,
    /// Completion channel of its completion queues; null: no thread ever sleeps.
    pub(in crate::backend::rdma) channel: ChannelIn,
    /// The device's name.
    pub(in crate::backend::rdma) name: String,
    pub(in crate::backend::rdma) port: u8,
    pub(in crate::backend::rdma) gid: Gid,
    pub(in crate::backend::rdma) gid_index: u8,
    pub(in crate::backend::rdma) lid: u16,
    /// Verbs' enumeration: 1 = 256 ... 5 = 4096.
    pub(in crate::backend::rdma) mtu: u32,
    pub(in crate::backend::rdma) layer: u8,
    pub(in crate::backend::rdma) limits: DeviceAttr,
    pub(in crate::backend::rdma) max_message: usize,
    pub(in crate::backend::rdma) post_send: PostSend,
    pub(in crate::backend::rdma) post_recv: PostRecv,
    pub(in crate::backend::rdma) poll_cq: PollCq,
    pub(in crate::backend::rdma) req_notify: ReqNotifyCq,
    /// Bytes registered now, and at most.
    registered: AtomicU64,
    most: AtomicU64,
    registrations: AtomicU64,
    /// Its port is known to be down.
    pub(in crate::backend::rdma) is_down: AtomicBool,
}

// SAFETY: objects of libibverbs may be used by any thread (verbs are thread safe).
unsafe impl Send for Rail {}
// SAFETY: objects of libibverbs may be used by any thread, also by several at once (verbs are
// thread safe).
unsafe impl Sync for Rail {}

impl Rail {
    /// Opens a device for a port.
    pub(in crate::backend::rdma) fn open(
        verbs: &Verbs,
        device: &str,
        port: u8,
        config: &Config,
    ) -> Result<Arc<Rail>> {
        let list = match DeviceList::get(verbs.calls) {
            Ok(list) => list,
            Err(why) => return fail!(DTL_ERROR_UNAVAILABLE, "{why}"),
        };
        let devices = list.devices();
        let Some((device, name)) = devices.into_iter().find(|(_, name)| *name == device) else {
            return fail!(DTL_ERROR_UNAVAILABLE, "there is no RDMA device \"{device}\" any more");
        };
        let calls = verbs.calls;
        // SAFETY: a device of the list, which lives.
        let context = unsafe { (calls.ibv_open_device)(device.ptr()) };
        if context.is_null() {
            return Err(last_failed("ibv_open_device").within(&name));
        }
        let opened = Opened { calls, context };
        let mut rail =
            Self::set_up(opened, &name, port, config).map_err(|error| error.within(&name))?;
        rail.listen(config.sleeps).map_err(|error| error.within(&name))?;
        Ok(Arc::new(rail))
    }

    fn set_up(opened: Opened, name: &str, port: u8, config: &Config) -> Result<Rail> {
        let Opened { calls, context } = opened;
        // SAFETY: an opened device.
        let ops = unsafe { (*context).ops };
        let (Some(post_send), Some(post_recv), Some(poll_cq), Some(req_notify)) =
            (ops.post_send, ops.post_recv, ops.poll_cq, ops.req_notify_cq)
        else {
            return fail!(
                DTL_ERROR_UNAVAILABLE,
                "its driver has no post_send, post_recv, poll_cq and req_notify_cq"
            );
        };
        let mut limits = DeviceAttr::zeroed();
        // SAFETY: an opened device, room for the struct.
        check("ibv_query_device", unsafe { (calls.ibv_query_device)(context, &raw mut limits) })?;
        let mut attr = PortAttr::zeroed();
        // SAFETY: an opened device, room for the port's attributes.
        check("ibv_query_port", unsafe { (calls.ibv_query_port)(context, port, &raw mut attr) })?;
        if attr.state != PORT_ACTIVE {
            return fail!(
                DTL_ERROR_UNAVAILABLE,
                "port {port} is not active (state {}): see \"rdma link\"",
                attr.state
            );
        }
        check_limits(config, port, &limits, &attr)?;
        let gids = port_select::gids(calls, context, name, port, attr.gid_tbl_len);
        let gid_index = gid_index(config, port, &gids, attr.link_layer)?;
        let mut gid: Gid = [0; 16];
        // SAFETY: an opened device, room for a GID.
        check("ibv_query_gid", unsafe {
            (calls.ibv_query_gid)(context, port, c_int::from(gid_index), &raw mut gid)
        })?;
        // SAFETY: an opened device.
        let pd = unsafe { (calls.ibv_alloc_pd)(context) };
        if pd.is_null() {
            return Err(last_failed("ibv_alloc_pd"));
        }
        // From here on its drop closes the device.
        std::mem::forget(opened);
        Ok(Rail {
            calls,
            context,
            pd,
            channel: std::ptr::null_mut(),
            name: name.to_owned(),
            port,
            gid,
            gid_index,
            lid: attr.lid,
            mtu: mtu_code(config.mtu).unwrap_or(attr.active_mtu).min(attr.active_mtu),
            layer: attr.link_layer,
            limits,
            max_message: attr.max_msg_sz as usize,
            post_send,
            post_recv,
            poll_cq,
            req_notify,
            registered: AtomicU64::new(0),
            most: AtomicU64::new(0),
            registrations: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
        })
    }

    /// Registers memory, which stays mapped as long as the registration lives.
    pub(in crate::backend::rdma) fn register(
        self: &Arc<Self>,
        region: Region,
    ) -> Result<Registration> {
        // SAFETY: our protection domain; the caller keeps the memory.
        let mr = unsafe {
            (self.calls.ibv_reg_mr)(self.pd, region.addr().ptr(), region.len(), ACCESS as c_int)
        };
        self.registered("ibv_reg_mr", mr, region)
    }

    /// Registers a device's memory by a dma-buf, in which it begins at `offset`; remote addresses
    /// are its pointer's.
    pub(in crate::backend::rdma) fn register_dmabuf(
        self: &Arc<Self>,
        fd: c_int,
        offset: u64,
        region: Region,
    ) -> Result<Registration> {
        let Some(register) = self.calls.ibv_reg_dmabuf_mr else { return Err(no_dmabuf()) };
        let (at, access) = (region.addr().get() as u64, DEVICE_ACCESS as c_int);
        // SAFETY: our protection domain, an open descriptor; the registration keeps the memory
        // itself.
        let mr = unsafe { register(self.pd, offset, region.len(), at, fd, access) };
        self.registered("ibv_reg_dmabuf_mr", mr, region)
    }

    /// What a call gave that registers.
    fn registered(
        self: &Arc<Self>,
        call: &str,
        mr: *mut Mr,
        region: Region,
    ) -> Result<Registration> {
        if mr.is_null() {
            return Err(last_failed(call).within(&format!(
                "{} bytes on {}",
                region.len(),
                self.name
            )));
        }
        let bytes = region.len() as u64;
        let now = self.registered.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.most.fetch_max(now, Ordering::Relaxed);
        self.registrations.fetch_add(1, Ordering::Relaxed);
        // SAFETY: a registration that was made now, and nobody changes it.
        let made = unsafe { &*mr };
        let (lkey, rkey) = (made.lkey, made.rkey);
        Ok(Registration { rail: Arc::clone(self), mr, lkey, rkey, bytes })
    }

    /// Whether device memory can be registered as the configuration has it.
    pub(in crate::backend::rdma) fn check_devices(verbs: &Verbs, config: &Config) -> Result<()> {
        let is_there =
            config.device_memory != Devices::Dmabuf || verbs.calls.ibv_reg_dmabuf_mr.is_some();
        if is_there { Ok(()) } else { Err(no_dmabuf()) }
    }

    /// Makes a queue for completions.
    pub(in crate::backend::rdma) fn completions(
        self: &Arc<Self>,
        entries: usize,
    ) -> Result<Completions> {
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX).min(self.limits.max_cqe);
        // SAFETY: an opened device; its channel, or none.
        let cq = unsafe {
            (self.calls.ibv_create_cq)(self.context, entries, std::ptr::null_mut(), self.channel, 0)
        };
        if cq.is_null() {
            return Err(last_failed("ibv_create_cq").within(&self.name));
        }
        Ok(Completions { rail: Arc::clone(self), cq })
    }

    /// Its protection domain, for what `queue` makes.
    pub(in crate::backend::rdma) fn pd(&self) -> PdIn {
        self.pd
    }

    /// Bytes registered now, at most at once, and how often.
    pub(in crate::backend::rdma) fn memory(&self) -> [u64; 3] {
        [&self.registered, &self.most, &self.registrations]
            .map(|count| count.load(Ordering::Relaxed))
    }
}

impl Drop for Rail {
    fn drop(&mut self) {
        if !self.channel.is_null() {
            // SAFETY: its queues hold shares of this, so they are gone.
            unsafe { (self.calls.ibv_destroy_comp_channel)(self.channel) };
        }
        // SAFETY: everything that was made in it holds a share of this, so nothing is left.
        unsafe { (self.calls.ibv_dealloc_pd)(self.pd) };
        // SAFETY: everything that was made in it holds a share of this, so nothing is left; its
        // protection domain was freed just now. `open` opened it, and it is closed only here.
        unsafe { (self.calls.ibv_close_device)(self.context) };
    }
}

/// Closes the device unless forgotten.
struct Opened {
    calls: &'static Functions,
    context: *mut Context,
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: opened, and nothing was made in it.
        unsafe { (self.calls.ibv_close_device)(self.context) };
    }
}

fn check(what: &str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        // Some give the error's number, some -1 and errno.
        -1 => Err(last_failed(what)),
        code => Err(call_failed(what, code)),
    }
}

/// Returns an error if the configuration requests more than the device has.
fn check_limits(config: &Config, port: u8, limits: &DeviceAttr, attr: &PortAttr) -> Result<()> {
    let receives = limits.max_qp_wr.unsigned_abs();
    if config.depth > receives {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "depth (DTL_RDMA_DEPTH) is {}: use 4 to {receives}, which is what this device's queue \
             pairs have",
            config.depth
        );
    }
    // Over Ethernet some report an empty table, and have a key at index 0.
    let last = attr.pkey_tbl_len.saturating_sub(1);
    if config.pkey_index > last {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "pkey_index (DTL_RDMA_PKEY_INDEX) is {}: use 0 to {last}, which is what port {port} \
             has",
            config.pkey_index
        );
    }
    Ok(())
}

/// The address that is named, else the one that is chosen.
fn gid_index(config: &Config, port: u8, gids: &[GidInfo], layer: u8) -> Result<u8> {
    if let Some(named) = config.gid_index {
        if gids.iter().any(|gid| gid.index == named) {
            return Ok(named);
        }
        let there: Vec<_> = gids.iter().map(|gid| gid.index.to_string()).collect();
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "gid_index (DTL_RDMA_GID_INDEX) is {named}, where port {port} has no address (GID): it \
             has some at {}",
            there.join(", ")
        );
    }
    match port_select::choose_gid(gids, layer) {
        Some(index) => Ok(index),
        None => fail!(
            DTL_ERROR_UNAVAILABLE,
            "port {port} has no address (GID): give its network interface an IP address"
        ),
    }
}

fn no_dmabuf() -> Error {
    Error::new(
        crate::abi::status::DTL_ERROR_NOT_SUPPORTED,
        "device_memory (DTL_RDMA_DEVICE_MEMORY) is dmabuf, and this libibverbs.so.1 has no \
         ibv_reg_dmabuf_mr: use rdma-core 34 or \
         newer, or DTL_RDMA_STAGED (staged)",
    )
}

fn mtu_code(bytes: Option<u32>) -> Option<u32> {
    bytes.map(|bytes| (bytes.max(256) / 256).ilog2() + MTU_256)
}

/// Registered memory.
pub(in crate::backend::rdma) struct Registration {
    rail: Arc<Rail>,
    mr: *mut Mr,
    pub(in crate::backend::rdma) lkey: u32,
    pub(in crate::backend::rdma) rkey: u32,
    bytes: u64,
}

// SAFETY: verbs are thread safe.
unsafe impl Send for Registration {}
// SAFETY: verbs are thread safe, so shared references may be used from several threads at once.
unsafe impl Sync for Registration {}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: made by this rail, and not yet ended.
        unsafe { (self.rail.calls.ibv_dereg_mr)(self.mr) };
        self.rail.registered.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Completion queue of a rail's queue pairs.
pub(in crate::backend::rdma) struct Completions {
    pub(in crate::backend::rdma) rail: Arc<Rail>,
    pub(in crate::backend::rdma) cq: CqIn,
}

// SAFETY: verbs are thread safe.
unsafe impl Send for Completions {}
// SAFETY: verbs are thread safe, so shared references may be used from several threads at once.
unsafe impl Sync for Completions {}

impl Completions {
    /// Takes what is over; how many.
    #[inline]
    pub(in crate::backend::rdma) fn poll(&self, into: &mut [Wc]) -> Result<usize> {
        let room = c_int::try_from(into.len()).unwrap_or(c_int::MAX);
        // SAFETY: our completion queue, and room for so many.
        let got = unsafe { (self.rail.poll_cq)(self.cq, room, into.as_mut_ptr()) };
        match usize::try_from(got) {
            Ok(got) => Ok(got.min(into.len())),
            Err(_) => Err(call_failed("ibv_poll_cq", libc::EIO).within(&self.rail.name)),
        }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: ours; the queue pairs that used it hold shares of it, so they are gone.
        unsafe { (self.rail.calls.ibv_destroy_cq)(self.cq) };
    }
}
