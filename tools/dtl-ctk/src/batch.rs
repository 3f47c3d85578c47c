//! Runs one rank's part of a batch of messages: first the receives that are posted early, then the
//! sends, then the other receives. Then checks that every message arrived completely, exactly once,
//! in order and with the right envelope.

use crate::api::{self, no_info};
use crate::case::{Message, RecvKind, SendKind};
use crate::data::{self, FILLER};
use crate::kit::outcome::{Failure, call, output};
use crate::plan::{GUARD, View};
use dtl_sys::*;

/// Index of the first block of generated data that messages use; collectives use blocks with lower
/// indices.
const FIRST_BLOCK: u64 = 1000;

/// Receive operation: the message that it must receive, its buffer, and the envelope that it
/// returns.
struct Receive<'a> {
    index: usize,
    message: &'a Message,
    buffer: Vec<u8>,
    request: dtl_request_t,
    info: dtl_recv_info_t,
}

struct Send {
    /// Buffer that stays allocated until the request is complete.
    _buffer: Vec<u8>,
    request: dtl_request_t,
    persistent: bool,
}

pub(crate) struct Batch<'a> {
    comm: dtl_comm_t,
    view: View<'a>,
    timeout_ns: u64,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(comm: dtl_comm_t, view: View<'a>, timeout_ns: u64) -> Batch<'a> {
        Batch { comm, view, timeout_ns }
    }

    /// Runs the batch and checks the received data. Returns the hash `before`, updated with this
    /// data.
    pub(crate) fn run(&self, before: u64) -> Result<u64, Failure> {
        let mut receives = self.receives();
        for receive in receives.iter_mut().filter(|receive| receive.message.recv.is_early()) {
            self.post(receive).map_err(|failure| failure.within(&name(receive)))?;
        }
        let sends = self.send_all()?;
        for receive in receives.iter_mut().filter(|receive| !receive.message.recv.is_early()) {
            self.late(receive).map_err(|failure| failure.within(&name(receive)))?;
        }
        for receive in receives.iter_mut().filter(|receive| receive.message.recv.is_early()) {
            let ended =
                api::wait(receive.request, self.timeout_ns, expected_status(receive.message));
            receive.info = ended.map_err(|failure| failure.within(&name(receive)))?;
            if receive.message.recv == RecvKind::Persistent {
                call!(dtl_request_destroy(receive.request))?;
            }
        }
        for send in &sends {
            api::wait(send.request, self.timeout_ns, DTL_SUCCESS)?;
            if send.persistent {
                call!(dtl_request_destroy(send.request))?;
            }
        }
        self.judge(before, &receives)
    }

    /// Returns this rank's receives in posting order.
    fn receives(&self) -> Vec<Receive<'a>> {
        let place = self.view.place;
        let size = self.view.step.ty.size;
        let mut list: Vec<Receive> = self
            .view
            .step
            .messages
            .iter()
            .enumerate()
            .filter(|(_, message)| message.dest == place.rank && message.source < place.size)
            .map(|(index, message)| Receive {
                index,
                message,
                buffer: vec![FILLER; message.room as usize * size + GUARD],
                request: DTL_REQUEST_NULL,
                info: no_info(),
            })
            .collect();
        list.sort_by_key(|receive| receive.message.order);
        list
    }

    fn post(&self, receive: &mut Receive) -> Result<(), Failure> {
        let (source, tag) = asked(receive.message);
        let (count, dtype) = (receive.message.room, self.view.step.dtype());
        let (buffer, out) = (receive.buffer.as_mut_ptr().cast(), &raw mut receive.request);
        if receive.message.recv == RecvKind::Persistent {
            call!(dtl_comm_recv_init(self.comm, buffer, count, dtype, source, tag, out))?;
            return Ok(call!(dtl_request_start(receive.request))?);
        }
        Ok(call!(dtl_comm_irecv(self.comm, buffer, count, dtype, source, tag, out))?)
    }

    fn send_all(&self) -> Result<Vec<Send>, Failure> {
        let place = self.view.place;
        let mut sends = Vec::new();
        for (index, message) in self.view.step.messages.iter().enumerate() {
            if message.source == place.rank && message.dest < place.size {
                let sent = self.send(index, message);
                sends.extend(sent.map_err(|failure| failure.within(&format!("message {index}")))?);
            }
        }
        Ok(sends)
    }

    /// Sends a message. Returns the request and its buffer if the call created a request.
    fn send(&self, index: usize, message: &Message) -> Result<Option<Send>, Failure> {
        let buffer = self.view.input(message.source, FIRST_BLOCK + index as u64, message.count);
        let (bytes, count, dtype) = (buffer.as_ptr().cast(), message.count, self.view.step.dtype());
        let (comm, dest, tag) = (self.comm, message.dest as i32, message.tag);
        let mut request = DTL_REQUEST_NULL;
        let out = &raw mut request;
        match message.send {
            SendKind::Send => call!(dtl_comm_send(comm, bytes, count, dtype, dest, tag)),
            SendKind::Ssend => call!(dtl_comm_ssend(comm, bytes, count, dtype, dest, tag)),
            SendKind::Isend => call!(dtl_comm_isend(comm, bytes, count, dtype, dest, tag, out)),
            SendKind::Issend => call!(dtl_comm_issend(comm, bytes, count, dtype, dest, tag, out)),
            SendKind::Persistent => {
                call!(dtl_comm_send_init(comm, bytes, count, dtype, dest, tag, out))
            }
        }?;
        let persistent = message.send == SendKind::Persistent;
        if persistent {
            call!(dtl_request_start(request))?;
        }
        Ok((request != DTL_REQUEST_NULL).then_some(Send { _buffer: buffer, request, persistent }))
    }

    fn late(&self, receive: &mut Receive) -> Result<(), Failure> {
        match receive.message.recv {
            RecvKind::Mprobe | RecvKind::Improbe => self.receive_matched(receive),
            RecvKind::Probe | RecvKind::Iprobe => {
                let seen = self.probe(receive.message)?;
                self.receive(receive, (seen.source, seen.tag))?;
                same_envelope(&seen, &receive.info)
            }
            _ => self.receive(receive, asked(receive.message)),
        }
    }

    fn receive(&self, receive: &mut Receive, (source, tag): (i32, i32)) -> Result<(), Failure> {
        let (count, dtype) = (receive.message.room, self.view.step.dtype());
        let (buffer, info) = (receive.buffer.as_mut_ptr().cast(), &raw mut receive.info);
        let ended = call!(dtl_comm_recv(self.comm, buffer, count, dtype, source, tag, info));
        api::ended_with(expected_status(receive.message), "dtl_comm_recv", ended)
    }

    fn probe(&self, message: &Message) -> Result<dtl_recv_info_t, Failure> {
        let (source, tag) = asked(message);
        if message.recv == RecvKind::Probe {
            return Ok(output!(no_info(), dtl_comm_probe(self.comm, source, tag))?);
        }
        let mut info = no_info();
        let out = &raw mut info;
        api::poll("dtl_comm_iprobe", self.timeout_ns, |found| {
            call!(dtl_comm_iprobe(self.comm, source, tag, found, out))
        })?;
        Ok(info)
    }

    fn receive_matched(&self, receive: &mut Receive) -> Result<(), Failure> {
        let (source, tag) = asked(receive.message);
        let (count, dtype) = (receive.message.room, self.view.step.dtype());
        let (mut seen, mut message) = (no_info(), DTL_MESSAGE_NULL);
        let (see, take, info) = (&raw mut seen, &raw mut message, &raw mut receive.info);
        let buffer = receive.buffer.as_mut_ptr().cast();
        let expected = expected_status(receive.message);
        if receive.message.recv == RecvKind::Mprobe {
            call!(dtl_comm_mprobe(self.comm, source, tag, take, see))?;
            let ended = call!(dtl_comm_mrecv(message, buffer, count, dtype, info));
            api::ended_with(expected, "dtl_comm_mrecv", ended)?;
        } else {
            api::poll("dtl_comm_improbe", self.timeout_ns, |found| {
                call!(dtl_comm_improbe(self.comm, source, tag, found, take, see))
            })?;
            let request =
                output!(DTL_REQUEST_NULL, dtl_comm_imrecv(message, buffer, count, dtype))?;
            receive.info = api::wait(request, self.timeout_ns, expected)?;
        }
        same_envelope(&seen, &receive.info)
    }

    /// Finds the receive that matched each message and checks its data. Returns the hash `before`,
    /// updated with the data in the order of the message list.
    fn judge(&self, before: u64, receives: &[Receive]) -> Result<u64, Failure> {
        let mut hash = before;
        let mut used = vec![false; receives.len()];
        let place = self.view.place;
        for (index, message) in self.view.step.messages.iter().enumerate() {
            if message.dest != place.rank || message.source >= place.size {
                continue;
            }
            let is_its = |receive: &Receive| match message.any_source {
                true => receive.info.source as u64 == message.source,
                false => receive.index == index,
            };
            let found =
                receives.iter().zip(&used).position(|(receive, used)| !used && is_its(receive));
            let Some(found) = found else {
                let text = format!("message {index} from rank {} did not come", message.source);
                return Err(Failure::wrong(text));
            };
            used[found] = true;
            let bytes = self.compare(index, message, &receives[found])?;
            hash = data::hash(hash, &receives[found].buffer[..bytes]);
        }
        Ok(hash)
    }

    /// Compares the envelope and the bytes of a message with what was sent. Returns the number of
    /// received bytes.
    fn compare(
        &self,
        index: usize,
        message: &Message,
        receive: &Receive,
    ) -> Result<usize, Failure> {
        let ty = self.view.step.ty;
        let info = &receive.info;
        let told = (info.source as u64, info.tag, info.size_bytes, info.status);
        let bytes = message.count * ty.size as u64;
        let right = (message.source, message.tag, bytes, expected_status(receive.message));
        if told != right {
            let what = format!("message {index}: the receive tells (source, tag, bytes, status)");
            return Err(Failure::wrong(format!("{what} {told:?}, expected {right:?}")));
        }
        let came = message.count.min(receive.message.room) as usize * ty.size;
        let sent = self.view.input(message.source, FIRST_BLOCK + index as u64, message.count);
        let right = sent[..came].iter().chain(std::iter::repeat(&FILLER));
        if let Some(at) = receive.buffer.iter().zip(right).position(|(is, should)| is != should) {
            let what = if at < came { "has a wrong byte" } else { "was written behind its end" };
            let whose = format!("message {index} from rank {}", message.source);
            return Err(Failure::wrong(format!("{whose} {what}, at byte {at} of {came}")));
        }
        Ok(came)
    }
}

fn name(receive: &Receive) -> String {
    format!("receive of message {} from rank {}", receive.index, receive.message.source)
}

/// Returns the source and the tag that the receive of a message specifies.
fn asked(message: &Message) -> (i32, i32) {
    let source = if message.any_source { DTL_ANY_SOURCE } else { message.source as i32 };
    (source, if message.any_tag { DTL_ANY_TAG } else { message.tag })
}

fn expected_status(message: &Message) -> dtl_status_t {
    if message.room < message.count { DTL_ERROR_TRUNCATED } else { DTL_SUCCESS }
}

/// Checks that a probe and the receive after it returned the same source, tag and size.
fn same_envelope(seen: &dtl_recv_info_t, got: &dtl_recv_info_t) -> Result<(), Failure> {
    let key = |info: &dtl_recv_info_t| (info.source, info.tag, info.size_bytes);
    if key(seen) == key(got) {
        return Ok(());
    }
    let text =
        format!("the probe told (source, tag, bytes) {:?}, the receive {:?}", key(seen), key(got));
    Err(Failure::wrong(text))
}
