//! Collectives for the tests that call `coll_supports` and `coll_start` of a comm table directly:
//! arguments, buffers and expected results. The buffers are those of the random cases.

use crate::case::{OPS, Op, Place, Step};
use crate::case_run::compare;
use crate::data::{self, Class, REDUCTIONS, TYPES, Type, go_together, reduction_name};
use crate::kit::prelude::*;
use crate::kit::slot_comm::{SlotComm, ended_well};
use crate::plan::{GUARD, Plan, View};
use crate::reference::{self, Expected};
use crate::window::Schedule;

/// The collectives that the slots have, in the order of their numbers.
pub(crate) fn collectives() -> impl Iterator<Item = Op> {
    OPS[..=Op::Exscan as usize].iter().map(|(op, ..)| *op)
}

/// Returns each dtype with each operation that is defined for it; no dtype or operation of a
/// program.
pub(crate) fn pairs() -> impl Iterator<Item = (Type, dtl_reduce_op_t)> {
    let types = TYPES.into_iter().filter(|ty| ty.class != Class::User);
    let ops = |ty: Type| {
        let pairs = REDUCTIONS.into_iter().map(move |(op, _)| (ty, op));
        pairs.filter(|(ty, op)| go_together(*op, ty.class))
    };
    types.flat_map(ops)
}

/// Returns true for collectives whose ranks have counts of their own.
pub(crate) fn is_varied(op: Op) -> bool {
    use Op::*;
    matches!(op, Gatherv | Scatterv | Allgatherv | Alltoallv | ReduceScatter)
}

/// Description of a collective. It is equal on all ranks.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    pub(crate) op: Op,
    pub(crate) ty: Type,
    pub(crate) reduction: dtl_reduce_op_t,
    pub(crate) in_place: bool,
    pub(crate) root: i32,
    /// Number of elements, from which collectives with counts for each rank derive different ones.
    pub(crate) count: u64,
    /// Number of elements between blocks that have places of their own.
    pub(crate) gap: u64,
    pub(crate) context: u32,
    pub(crate) deterministic: bool,
    /// Key from which the data is generated.
    pub(crate) key: u64,
}

impl Form {
    /// Creates a collective of 5 integers, with their sums if it reduces.
    pub(crate) fn new(op: Op) -> Form {
        let ty = TYPES[DTL_DTYPE_INT64 as usize];
        Form {
            op,
            ty,
            reduction: DTL_OP_SUM,
            in_place: false,
            root: 0,
            count: 5,
            gap: 0,
            context: 0,
            deterministic: false,
            key: 11,
        }
    }

    /// Creates one collective of each kind, the rooted ones with each root.
    pub(crate) fn each(size: i32) -> impl Iterator<Item = Form> {
        collectives().flat_map(move |op| Form::new(op).roots(size))
    }

    /// Creates copies with each root; one copy if the collective has none.
    pub(crate) fn roots(self, size: i32) -> impl Iterator<Item = Form> {
        let roots = if self.op.is_rooted() { size } else { 1 };
        (0..roots).map(move |root| Form { root, key: self.key + root as u64, ..self })
    }

    pub(crate) fn can_be_in_place(&self) -> bool {
        !matches!(self.op, Op::Barrier | Op::Bcast)
    }

    pub(crate) fn text(&self) -> String {
        let mut text = self.op.name().to_owned();
        if self.op != Op::Barrier {
            text += &format!(" of {} elements of {}", self.count, self.ty.name);
        }
        if self.op.reduces() {
            text += &format!(" by {}", reduction_name(self.reduction));
        }
        if self.op.is_rooted() {
            text += &format!(", root {}", self.root);
        }
        if self.in_place {
            text += ", in place";
        }
        if self.deterministic {
            text += ", deterministic";
        }
        text
    }

    pub(crate) fn step(&self, size: u64) -> Step {
        use Op::*;
        let n = self.count as i64;
        // Some ranks have nothing.
        let of_rank = |rank: u64| if n == 0 || rank == 1 { 0 } else { n + 2 * rank as i64 };
        let of_pair = |from: u64, to: u64| {
            if n == 0 || (from + 2 * to) % 4 == 3 { 0 } else { n + (2 * from + 3 * to) as i64 }
        };
        let has_places = matches!(self.op, Gatherv | Scatterv | Allgatherv | Alltoallv);
        Step {
            op: self.op,
            ty: self.ty,
            reduction: self.reduction,
            nonblocking: false,
            in_place: self.in_place,
            root: self.root as u64,
            gap: if has_places { self.gap } else { 0 },
            order: if has_places { (0..size).rev().collect() } else { Vec::new() },
            counts: match self.op {
                Alltoallv => {
                    (0..size * size).map(|pair| of_pair(pair / size, pair % size)).collect()
                }
                op if is_varied(op) => (0..size).map(of_rank).collect(),
                _ => vec![n],
            },
            messages: Vec::new(),
            window: Schedule::default(),
        }
    }
}

const NOTHING: dtl_coll_range_t = dtl_coll_range_t { ptr: ptr::null_mut(), size_bytes: 0 };

/// Memory of a buffer, in elements.
struct Memory {
    base: *mut u8,
    element: usize,
}

impl Memory {
    fn of(bytes: &mut [u8], ty: Type) -> Memory {
        Memory { base: bytes.as_mut_ptr(), element: ty.size }
    }

    fn range(&self, first: u64, count: u64) -> dtl_coll_range_t {
        let at = self.base.wrapping_add(first as usize * self.element);
        dtl_coll_range_t { ptr: at.cast(), size_bytes: count * self.element as u64 }
    }

    fn ranges(&self, displs: &[u64], counts: &[u64]) -> Vec<dtl_coll_range_t> {
        displs.iter().zip(counts).map(|(first, count)| self.range(*first, *count)).collect()
    }
}

/// One rank's part of a collective.
pub(crate) struct Collective<'a> {
    comm: &'a SlotComm,
    pub(crate) form: Form,
    step: Step,
    plan: Plan,
    /// Contents of the send buffer.
    sent: Vec<u8>,
    expected: Expected,
    send: Vec<dtl_coll_range_t>,
    recv: Vec<dtl_coll_range_t>,
    count: u64,
    /// Operation, from the start of the collective to its end.
    id: Option<u64>,
    pub(crate) is_done: bool,
    /// The first element of the result is a NaN.
    has_nan: bool,
}

impl Drop for Collective<'_> {
    fn drop(&mut self) {
        // Only after a failure: the buffers must outlive whatever the transport still does there.
        if self.id.is_some() {
            std::mem::forget(std::mem::take(&mut self.plan));
        }
    }
}

impl<'a> Collective<'a> {
    pub(crate) fn new(comm: &'a SlotComm, form: Form) -> Collective<'a> {
        let (rank, size) = (comm.rank as u64, comm.size as u64);
        let step = form.step(size);
        let view =
            View { step: &step, place: Place { rank, size, color: 0 }, ranks: size, key: form.key };
        let mut plan = view.plan();
        let expected = reference::expected(&view, &plan);
        let (send, recv) = ranges(&view, &mut plan);
        let count = match form.op {
            Op::Barrier => 0,
            Op::Alltoallv if form.in_place => plan.rcounts.iter().sum(),
            Op::Alltoallv => plan.scounts.iter().sum(),
            op if is_varied(op) => step.count_of(rank),
            _ => form.count,
        };
        let sent = plan.send.clone();
        let (id, is_done, has_nan) = (None, false, false);
        Collective {
            comm,
            form,
            step,
            plan,
            sent,
            expected,
            send,
            recv,
            count,
            id,
            is_done,
            has_nan,
        }
    }

    pub(crate) fn args(&self) -> dtl_coll_args_t {
        let form = &self.form;
        let has_data = form.op != Op::Barrier;
        let in_place = self.plan.send_in_place || self.plan.recv_in_place;
        dtl_coll_args_t {
            struct_size: size_of::<dtl_coll_args_t>() as u32,
            collective: form.op as i32,
            flags: if in_place { DTL_COLL_IN_PLACE } else { 0 }
                | if form.deterministic { DTL_COLL_DETERMINISTIC } else { 0 },
            context: form.context,
            root: if form.op.is_rooted() { form.root } else { -1 },
            dtype: if has_data { form.ty.dtype } else { -1 },
            op: if form.op.reduces() { form.reduction } else { -1 },
            count: self.count,
            element_bytes: if has_data { form.ty.size as u64 } else { 0 },
            send: self.send.as_ptr(),
            send_count: self.send.len() as u64,
            recv: self.recv.as_ptr(),
            recv_count: self.recv.len() as u64,
            memory_backend: DTL_BACKEND_NULL,
            memory_kind: 0,
            memory_device: 0,
            reserved: 0,
        }
    }

    /// Replaces the first element that rank `from` sends with a NaN. The first element of the result
    /// is then one, too.
    pub(crate) fn put_nan(&mut self, from: i32) {
        let (nan, size) = (nan(self.form.ty), self.form.ty.size);
        if self.comm.rank == from {
            self.plan.send[..size].copy_from_slice(&nan[8 - size..]);
            self.sent = self.plan.send.clone();
        }
        self.has_nan = !self.plan.recv.is_empty();
    }

    /// Returns the whole send buffer and the whole receive buffer.
    pub(crate) fn memory(&mut self) -> [dtl_coll_range_t; 2] {
        [&mut self.plan.send, &mut self.plan.recv].map(|buffer| dtl_coll_range_t {
            ptr: buffer.as_mut_ptr().cast(),
            size_bytes: buffer.len() as u64,
        })
    }

    pub(crate) fn is_supported(&self) -> Outcome<bool> {
        self.comm.supports(&self.args())
    }

    /// Returns the answer of `coll_supports` for buffers at addresses that are `shift` bytes
    /// higher. It must not access the buffers.
    pub(crate) fn is_supported_at(&self, shift: usize) -> Outcome<bool> {
        let moved = |range: &dtl_coll_range_t| dtl_coll_range_t {
            ptr: range.ptr.cast::<u8>().wrapping_add(shift).cast(),
            ..*range
        };
        let send: Vec<_> = self.send.iter().map(moved).collect();
        let recv: Vec<_> = self.recv.iter().map(moved).collect();
        let args = self.args();
        self.comm.supports(&dtl_coll_args_t { send: send.as_ptr(), recv: recv.as_ptr(), ..args })
    }

    /// Starts the collective. Returns false if there is no room now.
    pub(crate) fn try_start(&mut self) -> Outcome<bool> {
        self.id = self.comm.try_collective(&self.args())?;
        Ok(self.id.is_some())
    }

    /// Starts the collective as soon as there is room.
    pub(crate) fn start(&mut self) -> Outcome {
        let begin = Instant::now();
        while !self.try_start()? {
            self.comm.pause(begin, || "comm.coll_start has returned DTL_ERROR_BUSY".to_owned())?;
        }
        Ok(())
    }

    /// Tests the collective once. Returns its status if it is complete.
    pub(crate) fn status(&mut self) -> Outcome<Option<dtl_status_t>> {
        let Some(id) = self.id else { return Ok(None) };
        let status = self.comm.collective_status(id)?;
        if status.is_some() {
            (self.id, self.is_done) = (None, true);
        }
        Ok(status)
    }

    /// Tests the collective once. Checks the result if it is complete.
    pub(crate) fn test(&mut self) -> Outcome<bool> {
        let Some(status) = self.status()? else { return Ok(false) };
        ended_well(&self.form.text(), status)?;
        self.check().map(|()| true)
    }

    pub(crate) fn wait(&mut self) -> Outcome {
        let begin = Instant::now();
        while !self.test()? {
            self.comm
                .pause(begin, || format!("comm.test has not completed {}", self.form.text()))?;
        }
        Ok(())
    }

    pub(crate) fn cancel(&self) -> Outcome {
        self.id.map_or(Ok(()), |id| self.comm.cancel(id))
    }

    fn check(&mut self) -> Outcome {
        let (plan, should) = (&mut self.plan, &self.expected.recv);
        if self.form.op.reduces() {
            let end = plan.recv.len().saturating_sub(GUARD);
            data::settle_padding(&mut plan.recv[..end], should, self.form.ty);
        }
        let text = || self.form.text();
        if self.has_nan {
            let (size, nan) = (self.form.ty.size, nan(self.form.ty));
            // The payload and the sign may be others: only the exponent's bits, and one below.
            let top =
                |bytes: &[u8]| u16::from_le_bytes([bytes[size - 2], bytes[size - 1]]) & 0x7FFF;
            let is_nan = top(&plan.recv) >= top(&nan[8 - size..]);
            ensure!(is_nan, "{}: an element is a NaN, and the result is none", text());
            plan.recv[..size].copy_from_slice(&should[..size]);
        }
        compare(&self.step, plan, &should[..self.expected.compared])
            .map_err(|failure| failure.within(&text()))?;
        ensure!(plan.send == self.sent, "{}: the send buffer was changed", text());
        Ok(())
    }

    /// Overwrites the receive buffer. The transport must not use it any more.
    pub(crate) fn reuse(&mut self, byte: u8) {
        self.plan.recv.fill(byte);
    }

    pub(crate) fn is_filled_with(&self, byte: u8) -> bool {
        self.plan.recv.iter().all(|is| *is == byte)
    }
}

/// Returns a quiet NaN of a floating-point type as its last bytes.
fn nan(ty: Type) -> [u8; 8] {
    let top: u16 = match ty.dtype {
        DTL_DTYPE_FLOAT16 => 0x7E00,
        DTL_DTYPE_FLOAT64 => 0x7FF8,
        _ => 0x7FC0,
    };
    (u64::from(top) << 48).to_le_bytes()
}

/// Returns the ranges of the send and of the receive buffer, as the library passes them.
fn ranges(view: &View, plan: &mut Plan) -> (Vec<dtl_coll_range_t>, Vec<dtl_coll_range_t>) {
    use Op::*;
    let (ty, rank) = (view.step.ty, view.place.rank as usize);
    let (in_place, own) = (plan.send_in_place, plan.count);
    let all = view.place.size * view.step.count();
    let is_passed = |buffer: &[u8]| !buffer.is_empty();
    let (sends, receives) = (is_passed(&plan.send), is_passed(&plan.recv));
    let (send, recv) = (Memory::of(&mut plan.send, ty), Memory::of(&mut plan.recv, ty));
    let one =
        |is_passed: bool, range: dtl_coll_range_t| vec![if is_passed { range } else { NOTHING }];
    let blocks = |memory: &Memory, counts: &[u64]| {
        memory.ranges(&view.layout(counts.to_vec()).displs, counts)
    };
    match view.step.op {
        Bcast => (vec![NOTHING], vec![recv.range(0, own)]),
        Reduce | Allreduce | Scan | Exscan => {
            let from = if in_place { &recv } else { &send };
            (vec![from.range(0, own)], one(receives, recv.range(0, own)))
        }
        Gather | Allgather => {
            let mine =
                if in_place { recv.range(rank as u64 * own, own) } else { send.range(0, own) };
            (vec![mine], one(receives, recv.range(0, all)))
        }
        Gatherv | Allgatherv => {
            let into = blocks(&recv, &plan.rcounts);
            let mine = if in_place { into[rank] } else { send.range(0, own) };
            (vec![mine], if receives { into } else { vec![NOTHING] })
        }
        Scatter => {
            let mine = send.range(rank as u64 * own, own);
            let into = if plan.recv_in_place { mine } else { recv.range(0, own) };
            (one(sends, send.range(0, all)), vec![into])
        }
        Scatterv => {
            let from = blocks(&send, &plan.scounts);
            let into = if plan.recv_in_place { from[rank] } else { recv.range(0, own) };
            (if sends { from } else { vec![NOTHING] }, vec![into])
        }
        Alltoall => {
            let from = if in_place { &recv } else { &send };
            (vec![from.range(0, all)], vec![recv.range(0, all)])
        }
        Alltoallv => {
            let into = blocks(&recv, &plan.rcounts);
            (if in_place { into.clone() } else { blocks(&send, &plan.scounts) }, into)
        }
        ReduceScatter => {
            let from = if in_place { &recv } else { &send };
            (blocks(from, &plan.rcounts), vec![recv.range(0, plan.rcounts[rank])])
        }
        ReduceScatterBlock => {
            let from = if in_place { &recv } else { &send };
            (vec![from.range(0, all)], vec![recv.range(0, own)])
        }
        _ => (vec![NOTHING], vec![NOTHING]),
    }
}

/// Keeps the forms that `coll_supports` accepts. Skips the test if it accepts none.
pub(crate) fn supported(
    comm: &SlotComm,
    forms: impl IntoIterator<Item = Form>,
) -> Outcome<Vec<Form>> {
    let mut kept = Vec::new();
    for form in forms {
        if Collective::new(comm, form).is_supported()? {
            kept.push(form);
        }
    }
    some(!kept.is_empty()).map(|()| kept)
}

/// Skips the test unless `coll_supports` has accepted a collective.
fn some(is_any: bool) -> Outcome {
    if !is_any {
        skip!("coll_supports accepts none of the collectives of this test");
    }
    Ok(())
}

/// Runs the forms that `coll_supports` accepts, one after another. Skips the test if it accepts
/// none.
pub(crate) fn run_each(comm: &SlotComm, forms: impl IntoIterator<Item = Form>) -> Outcome {
    let mut is_any = false;
    for form in forms {
        let mut one = Collective::new(comm, form);
        if one.is_supported()? {
            one.start()?;
            one.wait()?;
            is_any = true;
        }
    }
    some(is_any)
}

/// Starts all collectives, in this order and as soon as there is room, and completes them. Tests
/// the last one first.
pub(crate) fn run_together(comm: &SlotComm, all: &mut [Collective]) -> Outcome {
    let (begin, mut started) = (Instant::now(), 0);
    while all.iter().any(|one| !one.is_done) {
        while started < all.len() && all[started].try_start()? {
            started += 1;
        }
        for one in all[..started].iter_mut().rev().filter(|one| !one.is_done) {
            one.test()?;
        }
        let left = all.iter().find(|one| !one.is_done).map(|one| one.form.text());
        comm.pause(begin, || {
            format!("{started} of {} are started, and not done: {left:?}", all.len())
        })?;
    }
    Ok(())
}
