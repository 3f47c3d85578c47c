//! Opened device and port: creates queue pairs and registrations, and counts registered memory.

use super::discovery::DeviceList;
use super::errors::{call_failed, last_failed};
use super::functions::*;
use super::port_select::{self, GidInfo};
use super::types::*;
use crate::abi::status::{DTL_ERROR_NOT_SUPPORTED, DTL_ERROR_UNAVAILABLE};
use crate::backend::rdma::config::{Config, Devices};
use crate::error::{Error, Result, fail, failure};
use crate::sys::memory::buf::Region;
use std::ffi::c_int;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Access rights of the local and the remote network cards to registered host memory.
const ACCESS: u32 =
    ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC;

/// Access rights of the local and the remote network cards to registered device memory. They
/// exclude atomics, because windows never use device memory.
const DEVICE_ACCESS: u32 = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ;

/// Opened device and port.
pub(crate) struct Rail {
    pub(crate) calls: &'static Functions,
    pub(crate) context: *mut Context,
    /// Protection domain of the registrations and queue pairs.
    pub(crate) pd: PdIn,
    /// Completion event channel of the completion queues; null if no thread waits for completion
    /// events.
    pub(crate) channel: ChannelIn,
    /// Name of the device.
    pub(crate) name: String,
    pub(crate) port: u8,
    pub(crate) gid: Gid,
    pub(crate) gid_index: u8,
    pub(crate) lid: u16,
    /// MTU in verbs encoding: from 1 for 256 bytes to 5 for 4096 bytes.
    pub(crate) mtu: u32,
    pub(crate) layer: u8,
    pub(crate) limits: DeviceAttr,
    pub(crate) max_message: usize,
    pub(crate) post_send: PostSend,
    pub(crate) post_recv: PostRecv,
    pub(crate) poll_cq: PollCq,
    pub(crate) req_notify: ReqNotifyCq,
    /// Number of bytes registered now; `most` is the maximum so far.
    registered: AtomicU64,
    most: AtomicU64,
    registrations: AtomicU64,
    /// True while the port is known to be down.
    pub(crate) is_down: AtomicBool,
}

// SAFETY: objects of libibverbs may be used by any thread (verbs are thread safe).
unsafe impl Send for Rail {}
// SAFETY: objects of libibverbs may be used by several threads at once (verbs are thread safe).
unsafe impl Sync for Rail {}

impl Rail {
    /// Opens the device named `device` in order to use one of its ports.
    pub(crate) fn open(
        calls: &'static Functions,
        device: &str,
        port: u8,
        config: &Config,
    ) -> Result<Arc<Rail>> {
        let list = DeviceList::get(calls).map_err(|why| Error::new(DTL_ERROR_UNAVAILABLE, why))?;
        let devices = list.devices();
        let Some((device, name)) = devices.into_iter().find(|(_, name)| *name == device) else {
            return fail!(DTL_ERROR_UNAVAILABLE, "there is no RDMA device \"{device}\" any more");
        };
        // SAFETY: `device` is a device of the list, which is alive.
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
        // SAFETY: the context is an opened device.
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
        // SAFETY: the context is an opened device; `limits` has room for the struct.
        check("ibv_query_device", unsafe { (calls.ibv_query_device)(context, &raw mut limits) })?;
        let mut attr = PortAttr::zeroed();
        // SAFETY: the context is an opened device; `attr` has room for the port's attributes.
        check("ibv_query_port", unsafe { (calls.ibv_query_port)(context, port, &raw mut attr) })?;
        if attr.state != PORT_ACTIVE {
            return fail!(
                DTL_ERROR_UNAVAILABLE,
                "port {port} is not active (state {}): see \"rdma link\"",
                attr.state
            );
        }
        check_limits(config, port, &limits, &attr)?;
        let device = Path::new(port_select::SYS).join(name);
        let gids = port_select::gids(calls, context, port, attr.gid_tbl_len, &device);
        let gid_index = gid_index(config, port, &gids, attr.link_layer)?;
        let mut gid = Gid::default();
        // SAFETY: the context is an opened device; `gid` has room for a GID.
        check("ibv_query_gid", unsafe {
            (calls.ibv_query_gid)(context, port, c_int::from(gid_index), &raw mut gid)
        })?;
        // SAFETY: the context is an opened device.
        let pd = unsafe { (calls.ibv_alloc_pd)(context) };
        if pd.is_null() {
            return Err(last_failed("ibv_alloc_pd"));
        }
        // From here on, dropping the `Rail` closes the device.
        std::mem::forget(opened);
        let mtu = config.mtu.map(|bytes| (bytes.max(256) / 256).ilog2() + MTU_256);
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
            mtu: mtu.unwrap_or(attr.active_mtu).min(attr.active_mtu),
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

    /// Registers memory, which must stay mapped as long as the registration exists.
    pub(crate) fn register(self: &Arc<Self>, region: Region) -> Result<Registration> {
        // SAFETY: this rail created the protection domain; the caller keeps the memory mapped.
        let mr = unsafe {
            (self.calls.ibv_reg_mr)(self.pd, region.addr().ptr(), region.len(), ACCESS as c_int)
        };
        self.registered("ibv_reg_mr", mr, region)
    }

    /// Registers device memory through a dma-buf, in which the memory begins at byte `offset`.
    /// Peers access the memory at the addresses of `region`.
    pub(crate) fn register_dmabuf(
        self: &Arc<Self>,
        fd: c_int,
        offset: u64,
        region: Region,
    ) -> Result<Registration> {
        let Some(register) = self.calls.ibv_reg_dmabuf_mr else { return Err(no_dmabuf()) };
        let (at, access) = (region.addr().get() as u64, DEVICE_ACCESS as c_int);
        // SAFETY: this rail created the protection domain, and the descriptor is open; the
        // registration itself keeps the memory alive.
        let mr = unsafe { register(self.pd, offset, region.len(), at, fd, access) };
        self.registered("ibv_reg_dmabuf_mr", mr, region)
    }

    /// Converts the result of a registration call to a `Registration` and counts its bytes.
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
        // SAFETY: the registration has just been created, and no one changes it.
        let made = unsafe { &*mr };
        let (lkey, rkey) = (made.lkey, made.rkey);
        Ok(Registration { rail: Arc::clone(self), mr, lkey, rkey, bytes })
    }

    /// Returns an error if device memory is configured to be registered through dma-buf and
    /// libibverbs has no `ibv_reg_dmabuf_mr`.
    pub(crate) fn check_devices(calls: &Functions, config: &Config) -> Result<()> {
        let is_there = config.device_memory != Devices::Dmabuf || calls.ibv_reg_dmabuf_mr.is_some();
        if is_there { Ok(()) } else { Err(no_dmabuf()) }
    }

    /// Creates a completion queue for `entries` completions, or for the device's maximum if that is
    /// smaller.
    pub(crate) fn completions(self: &Arc<Self>, entries: usize) -> Result<Completions> {
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX).min(self.limits.max_cqe);
        // SAFETY: the context is an opened device; the channel is the rail's, or null for none.
        let cq = unsafe {
            (self.calls.ibv_create_cq)(self.context, entries, std::ptr::null_mut(), self.channel, 0)
        };
        if cq.is_null() {
            return Err(last_failed("ibv_create_cq").within(&self.name));
        }
        Ok(Completions { rail: Arc::clone(self), cq })
    }

    /// Returns the number of bytes registered now, the maximum of that number so far, and the
    /// number of registrations so far.
    pub(crate) fn memory(&self) -> [u64; 3] {
        [&self.registered, &self.most, &self.registrations]
            .map(|count| count.load(Ordering::Relaxed))
    }
}

impl Drop for Rail {
    fn drop(&mut self) {
        if !self.channel.is_null() {
            // SAFETY: the channel's completion queues share ownership of this rail: none is left.
            unsafe { (self.calls.ibv_destroy_comp_channel)(self.channel) };
        }
        // SAFETY: every object of the domain shares ownership of this rail, so none is left.
        unsafe { (self.calls.ibv_dealloc_pd)(self.pd) };
        // SAFETY: every object created in the device shares ownership of this rail, so none is
        // left; its protection domain was freed just now. `open` opened the device; only `drop`
        // closes it.
        unsafe { (self.calls.ibv_close_device)(self.context) };
    }
}

/// Guard that closes an opened device unless the guard is forgotten.
struct Opened {
    calls: &'static Functions,
    context: *mut Context,
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: the device is open, and no object was created in it.
        unsafe { (self.calls.ibv_close_device)(self.context) };
    }
}

fn check(what: &str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        // Some calls return the errno value, others return -1 and set errno.
        -1 => Err(last_failed(what)),
        code => Err(call_failed(what, code)),
    }
}

/// Returns an error if the configuration exceeds the limits of the device.
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
    // On Ethernet some devices report an empty table although they have a key at index 0.
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

/// Returns the configured GID index, else the index that `choose_gid` selects.
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
    port_select::choose_gid(gids, layer).ok_or_else(|| {
        failure!(
            DTL_ERROR_UNAVAILABLE,
            "port {port} has no address (GID): give its network interface an IP address"
        )
    })
}

fn no_dmabuf() -> Error {
    Error::new(
        DTL_ERROR_NOT_SUPPORTED,
        "device_memory (DTL_RDMA_DEVICE_MEMORY) is dmabuf, and this libibverbs.so.1 has no \
         ibv_reg_dmabuf_mr: use rdma-core 34 or newer, or DTL_RDMA_STAGED (staged)",
    )
}

/// Registered memory.
pub(crate) struct Registration {
    rail: Arc<Rail>,
    mr: *mut Mr,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    bytes: u64,
}

// SAFETY: verbs are thread safe.
unsafe impl Send for Registration {}
// SAFETY: verbs are thread safe, so shared references may be used from several threads at once.
unsafe impl Sync for Registration {}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: this rail created the registration, which has not been released yet.
        unsafe { (self.rail.calls.ibv_dereg_mr)(self.mr) };
        self.rail.registered.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Completion queue for the queue pairs of a rail (opened port of a device).
pub(crate) struct Completions {
    pub(crate) rail: Arc<Rail>,
    pub(crate) cq: CqIn,
}

// SAFETY: verbs are thread safe.
unsafe impl Send for Completions {}
// SAFETY: verbs are thread safe, so shared references may be used from several threads at once.
unsafe impl Sync for Completions {}

impl Completions {
    /// Polls completions into `into`; returns their number.
    pub(crate) fn poll(&self, into: &mut [Wc]) -> Result<usize> {
        let room = c_int::try_from(into.len()).unwrap_or(c_int::MAX);
        // SAFETY: this library created the completion queue; `into` has room for `room` entries.
        let got = unsafe { (self.rail.poll_cq)(self.cq, room, into.as_mut_ptr()) };
        match usize::try_from(got) {
            Ok(got) => Ok(got.min(into.len())),
            Err(_) => Err(call_failed("ibv_poll_cq", libc::EIO).within(&self.rail.name)),
        }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: this library created the completion queue; the queue pairs that used it share
        // ownership of it, so all of them have been destroyed.
        unsafe { (self.rail.calls.ibv_destroy_cq)(self.cq) };
    }
}
