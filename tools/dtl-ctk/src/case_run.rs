//! Runs the cases on one rank. Compares each result with the reference. After each case, the ranks
//! determine collectively whether the results of all ranks are correct.

use crate::api::{self, Comm};
use crate::batch::Batch;
use crate::case::{Case, Group, Op, Step};
use crate::collective;
use crate::data::{self, show};
use crate::generate;
use crate::kit::outcome::Failure;
use crate::options::Run;
use crate::plan::{GUARD, Plan, View};
use crate::reference;
use crate::shrink;
use crate::window;
use dtl_sys::dtl_request_t;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;

/// State of one rank that runs cases.
pub(crate) struct CaseRun<'a> {
    pub(crate) run: &'a Run,
    pub(crate) rank: u64,
    pub(crate) ranks: u64,
    /// Communicator under test.
    pub(crate) comm: Comm,
    /// True if the cases may contain messages that are longer than their receive buffers.
    pub(crate) cuts: bool,
    /// File in which rank 0 records the number of each case before the case begins.
    pub(crate) progress: Option<File>,
}

impl CaseRun<'_> {
    /// Runs the cases up to the first one that fails on any rank. Returns true if all passed, false
    /// if a case failed on another rank only, and `Err` if it failed on this rank.
    pub(crate) fn go(&self) -> Result<bool, Failure> {
        let control = self.comm.dup()?;
        let mut digest = self.digest()?;
        let space = self.run.choice().space(self.ranks);
        for number in self.run.numbers() {
            self.record_case(number);
            let mut case = generate::case(&space, number);
            shrink::apply(&mut case, &self.run.random.shrink);
            if !self.cuts {
                case.uncut();
            }
            let (rank, ranks, what) = (self.rank, self.ranks, case.describe());
            let outcome = self.case(&case).map_err(|failure| {
                failure.within(&format!("case {number}, rank {rank} of {ranks} ({what})"))
            });
            let mine = match &outcome {
                Err(failure) if failure.out_of_step => return outcome.map(|_| false),
                Err(_) => [0, 1],
                Ok(hash) => [*hash, 0],
            };
            let all = api::gather_all(&control, mine, ranks)?;
            outcome?;
            if all.iter().any(|[_, failed]| *failed != 0) {
                return Ok(false);
            }
            if let Some(file) = &mut digest {
                let hash =
                    all.iter().fold(0, |hash, [of_rank, _]| data::hash_number(hash, *of_rank));
                let written = writeln!(file, "{number} {what} {hash:016x}");
                written.map_err(|error| outside(format!("the digest: {error}")))?;
            }
        }
        Ok(true)
    }

    fn digest(&self) -> Result<Option<BufWriter<File>>, Failure> {
        let Some(path) = self.run.random.digest.as_ref().filter(|_| self.rank == 0) else {
            return Ok(None);
        };
        let failed = |error| outside(format!("{}: {error}", path.display()));
        Ok(Some(BufWriter::new(File::create(path).map_err(failed)?)))
    }

    fn record_case(&self, number: u64) {
        if let Some(file) = self.progress.as_ref().filter(|_| self.rank == 0) {
            let _ = file.write_all_at(&(number + 1).to_le_bytes(), 0);
        }
    }

    /// Runs a case. Returns the hash of this rank's outputs.
    fn case(&self, case: &Case) -> Result<u64, Failure> {
        let own = match &case.group {
            Group::World => None,
            Group::Dup => Some(self.comm.dup()?),
            Group::Split(places) => {
                let (color, key) = places.get(self.rank as usize).copied().unwrap_or((-1, 0));
                match self.comm.split(api::color_of(color), key)? {
                    None => return Ok(0),
                    made => made,
                }
            }
        };
        let Some(place) = case.place(self.rank) else { return Ok(0) };
        let comm = own.as_ref().unwrap_or(&self.comm).raw();
        let view = |(step, number): (_, u64)| View {
            step,
            place,
            ranks: self.ranks,
            key: data::key(self.run.random.seed, case.number, number, place.color),
        };
        let views: Vec<View> = case.steps.iter().zip(0..).map(view).collect();
        let mut plans: Vec<Plan> = views.iter().map(View::plan).collect();
        let expected: Vec<_> =
            views.iter().zip(&plans).map(|(view, plan)| reference::expected(view, plan)).collect();
        let sent: Vec<Vec<u8>> = plans.iter().map(|plan| plan.send.clone()).collect();
        let messages = self.steps(comm, &views, &mut plans, case.finish)?;
        for (index, (view, plan)) in views.iter().zip(&mut plans).enumerate() {
            if view.step.op.reduces() {
                let end = plan.recv.len().saturating_sub(GUARD);
                data::settle_padding(&mut plan.recv[..end], &expected[index].recv, view.step.ty);
            }
        }
        let mut hash = 0;
        for (index, (view, plan)) in views.iter().zip(&plans).enumerate() {
            let within = |failure: Failure| failure.within(&named(index, view.step));
            compare(view.step, plan, &expected[index].recv[..expected[index].compared])
                .map_err(within)?;
            if plan.send != sent[index] {
                return Err(within(Failure::wrong("the send buffer was changed".into())));
            }
            hash = match messages[index] {
                Some(of_batch) => data::hash_number(hash, of_batch),
                None => data::hash(hash, &plan.recv[..expected[index].digested]),
            };
        }
        Ok(hash)
    }

    /// Executes the steps in order. Only starts the nonblocking collectives, and completes them
    /// after the last step. Returns a hash for each step that is a batch of messages or uses a
    /// window.
    fn steps(
        &self,
        comm: dtl_sys::dtl_comm_t,
        views: &[View],
        plans: &mut [Plan],
        finish: u64,
    ) -> Result<Vec<Option<u64>>, Failure> {
        let mut requests: Vec<dtl_request_t> = Vec::new();
        let mut messages = vec![None; views.len()];
        let mut wrong = None;
        for (index, (view, plan)) in views.iter().zip(plans).enumerate() {
            let step = view.step;
            let within = |failure: Failure| failure.within(&named(index, step));
            let outcome = if step.op.is_batch() {
                Batch::new(comm, *view, self.run.call_ns()).run(0).map(Some)
            } else if step.op.is_window() {
                window::run::run(comm, *view, finish, self.run.call_ns()).map(Some)
            } else if matches!(step.op, Op::Sendrecv | Op::Replace) {
                collective::shift(comm, step, plan).map(|()| None)
            } else {
                let begun = collective::call(comm, step, plan).map_err(Failure::from);
                begun.map(|begun| {
                    requests.extend(begun);
                    None
                })
            };
            // After a wrong outcome the other steps go on: the other ranks are in them.
            match outcome.map_err(within) {
                Err(failure) if failure.out_of_step => return Err(failure),
                Err(failure) => wrong = Some(failure),
                Ok(hash) => messages[index] = hash,
            }
        }
        api::finish(&mut requests, finish, self.run.call_ns())?;
        wrong.map_or(Ok(messages), Err)
    }
}

/// Creates a failure that other ranks might not detect; they could then wait for this rank forever.
fn outside(text: String) -> Failure {
    Failure { text, out_of_step: true }
}

fn named(index: usize, step: &Step) -> String {
    format!("step {index}, {}{}", if step.nonblocking { "i" } else { "" }, step.op.name())
}

/// Compares the receive buffer with the reference and reports the first difference.
pub(crate) fn compare(step: &Step, plan: &Plan, expected: &[u8]) -> Result<(), Failure> {
    let is = &plan.recv[..expected.len()];
    if is == expected {
        return Ok(());
    }
    let at = is.iter().zip(expected).position(|(is, should)| is != should).unwrap_or(0);
    let (size, element) = (step.ty.size, at / step.ty.size);
    let (first, end) = (element * size, (element * size + size).min(expected.len()));
    let (is, should) = (&is[first..end], &expected[first..end]);
    let is_filler = |bytes: &[u8]| bytes.iter().all(|byte| *byte == data::FILLER);
    let what = match (is_filler(is), is_filler(should)) {
        (true, _) => format!("was not written, expected {}", show(should, step.ty)),
        (_, true) => format!("was written ({}), but lies outside of the blocks", show(is, step.ty)),
        _ => format!("is {}, expected {}", show(is, step.ty), show(should, step.ty)),
    };
    Err(Failure::wrong(format!("element {element} of the receive buffer {what}")))
}
