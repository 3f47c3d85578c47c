//! Chrome's trace format: events as lines of JSON, and the expansion of file names.
//!
//! Source: "Trace Event Format" (Chromium), the JSON array format. Phases B and E are the start and
//! the end of a call or span of a thread. Phases b and e are the start and the end of an operation,
//! which are matched by category and id. Phase X is a span with its duration, and phase C the value
//! of a counter.

use super::args::{Phase, TraceEvent};
use super::tracks::Track;
use crate::abi::status::DTL_SUCCESS;
use crate::abi::trace::*;
use crate::error::{Result, fail, status_name};
use crate::runtime::types;
use crate::sys::{os::process, sync::wait};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Origin of an event: rank and thread.
#[derive(Clone, Copy)]
pub(super) struct EventOrigin {
    pub(super) rank: i32,
    pub(super) thread: i32,
}

/// Expands a path: %r is the rank, %p the process id, %% a %. In a job of several ranks, a path
/// with neither %r nor %p gets the rank before its extension: trace.json becomes trace.3.json.
pub(super) fn expand(path: &str, (rank, size): (i32, i32), pid: i32) -> Result<PathBuf> {
    let (mut full, mut is_own, mut chars) = (String::new(), false, path.chars());
    while let Some(char) = chars.next() {
        match (char, if char == '%' { chars.next() } else { None }) {
            ('%', Some('r')) => full.push_str(&rank.to_string()),
            ('%', Some('p')) => full.push_str(&pid.to_string()),
            ('%', Some('%')) => {
                full.push('%');
                continue;
            }
            ('%', other) => {
                let other = other.map(String::from).unwrap_or_default();
                return fail!(
                    DTL_ERROR_INVALID_ARGUMENT,
                    "trace {path}: %{other} stands for nothing; use %r (rank), %p (process id) or \
                     %% (a %)"
                );
            }
            _ => {
                full.push(char);
                continue;
            }
        }
        is_own = true;
    }
    let full = PathBuf::from(full);
    if full.file_name().is_none() || path.ends_with('/') {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "trace \"{path}\": it names no file");
    }
    if is_own || size <= 1 {
        return Ok(full);
    }
    let ending = full.extension().map(|ending| ending.to_string_lossy().into_owned());
    Ok(full.with_extension(
        ending.map_or_else(|| rank.to_string(), |ending| format!("{rank}.{ending}")),
    ))
}

/// Returns the path of the trace file number `life`, counted from 1. Each initialization of the
/// library starts a new file: trace.json, then trace-2.json.
pub(super) fn of_life(path: PathBuf, life: u32) -> PathBuf {
    if life <= 1 {
        return path;
    }
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{life}"));
    if let Some(ending) = path.extension() {
        name.push(".");
        name.push(ending);
    }
    path.with_file_name(name)
}

/// Separator after each event except the last. It ends the line, so that a file whose end is
/// missing (for example after a crash) still consists of whole lines.
const NEXT: &str = ",\n";

/// Returns the first lines of the trace file, with the name of the process and the wall-clock time
/// at which the trace starts.
pub(super) fn beginning(rank: i32) -> String {
    let mut text = String::from("[\n");
    let pid = process::own_pid();
    let program = std::env::current_exe().ok();
    let program = program
        .as_deref()
        .and_then(Path::file_name)
        .map(|name| name.to_string_lossy().into_owned());
    let wall = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    let (thread, now) = (process::thread_id(), wait::node_ns());
    let name = format!("{} ({pid})", program.unwrap_or_default());
    name_process(&mut text, EventOrigin { rank, thread }, rank, &name);
    mark(&mut text, "trace begins", rank, now);
    let _ = write!(
        text,
        ",\"args\":{{\"wall_clock_ns\":\"{wall}\",\"process\":{pid},\"libdtl\":\"{}\"}}}}{NEXT}",
        env!("CARGO_PKG_VERSION")
    );
    text
}

/// Appends the last lines of the trace file: the last event, without a comma after it, and the end
/// of the JSON array.
pub(super) fn end(text: &mut String, rank: i32, now: u64) {
    mark(text, "trace ends", rank, now);
    text.push_str("}\n]\n");
}

/// Appends the JSON object of an instant event with process scope, up to and including the
/// timestamp. The caller appends arguments, if any, and closes the object.
fn mark(text: &mut String, name: &str, rank: i32, now: u64) {
    let thread = process::thread_id();
    let _ = write!(
        text,
        "{{\"ph\":\"i\",\"s\":\"p\",\"cat\":\"trace\",\
         \"name\":\"{name}\",\"pid\":{rank},\"tid\":{thread},\"ts\":"
    );
    time(text, now);
}

/// Appends the metadata event that contains the name of a thread.
pub(super) fn name_thread(text: &mut String, place: EventOrigin) {
    let EventOrigin { thread, .. } = place;
    let name =
        std::fs::read_to_string(format!("/proc/self/task/{thread}/comm")).unwrap_or_default();
    metadata(text, place, "thread_name", name.trim_end());
}

/// Appends the metadata events that contain the name of a track and, if it `is_first` of its group,
/// the name of the group, which viewers show as a process beside that of the rank.
pub(super) fn name_track(text: &mut String, rank: i32, track: &Track, is_first: bool) {
    let place = track.origin(rank);
    if is_first {
        name_process(text, place, rank, &track.group.text().to_string_lossy());
    }
    metadata(text, place, "thread_name", &track.name.text().to_string_lossy());
}

/// Appends the metadata events that name a process of a rank and place it beside the rank.
fn name_process(text: &mut String, place: EventOrigin, rank: i32, name: &str) {
    metadata(text, place, "process_name", &format!("rank {rank}: {name}"));
    let EventOrigin { rank: process, thread } = place;
    let _ = write!(
        text,
        "{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{process},\"tid\":{thread},\
         \"args\":{{\"sort_index\":{rank}}}}}{NEXT}"
    );
}

/// Appends a metadata event that names a process or a thread.
fn metadata(text: &mut String, place: EventOrigin, key: &str, name: &str) {
    let EventOrigin { rank, thread } = place;
    let _ = write!(
        text,
        "{{\"ph\":\"M\",\"name\":\"{key}\",\"pid\":{rank},\"tid\":{thread},\"args\":{{\"name\":"
    );
    quoted(text, name);
    text.push_str("}}");
    text.push_str(NEXT);
}

/// Appends an event.
pub(super) fn event(text: &mut String, place: EventOrigin, event: &TraceEvent) {
    head(text, place, event);
    let args = &event.args;
    let mut more = More { text, has: args.has, is_first: true };
    if event.phase == Phase::Counter {
        more.key("value");
        let _ = write!(more.text, "{}", f64::from_bits(event.value));
    }
    more.number(DTL_TRACE_HAS_BYTES, "bytes", args.bytes);
    more.number(DTL_TRACE_HAS_PEER, "peer", args.peer);
    more.number(DTL_TRACE_HAS_TAG, "tag", args.tag);
    // As text: JSON numbers have 53 bits only.
    more.text(DTL_TRACE_HAS_COMM, "comm", || format!("{:#x}", args.comm));
    more.text(DTL_TRACE_HAS_DTYPE, "dtype", || types::dtype_text(args.dtype));
    more.text(DTL_TRACE_HAS_OP, "op", || types::op_text(args.op));
    more.text(DTL_TRACE_HAS_WHAT, "what", || args.text());
    if event.status != DTL_SUCCESS {
        more.key("status");
        quoted(text, &status_name(event.status).to_string_lossy());
    }
    text.push_str("}}");
    text.push_str(NEXT);
}

/// Appends an end event for a call or operation that was in progress when the trace ended.
pub(super) fn unfinished(text: &mut String, place: EventOrigin, begin: &TraceEvent, now: u64) {
    let phase = match begin.phase {
        Phase::Begin => Phase::End,
        _ => Phase::OperationEnd,
    };
    head(text, place, &TraceEvent { phase, time_ns: now, ..*begin });
    text.push_str("\"unfinished\":1}}");
    text.push_str(NEXT);
}

/// Appends the JSON object of an event up to the start of its arguments.
fn head(text: &mut String, place: EventOrigin, event: &TraceEvent) {
    let [category, name] = [event.category, event.name].map(|name| name.text().to_string_lossy());
    let EventOrigin { rank, thread } = place;
    let phase = event.phase.letter();
    let _ = write!(text, "{{\"ph\":\"{phase}\",\"cat\":");
    quoted(text, &category);
    text.push_str(",\"name\":");
    quoted(text, &name);
    text.push(',');
    if matches!(event.phase, Phase::OperationBegin | Phase::OperationEnd) {
        // Local to this process, because another rank may use the same id.
        let _ = write!(text, "\"id2\":{{\"local\":\"{:#x}\"}},", event.id);
    }
    let _ = write!(text, "\"pid\":{rank},\"tid\":{thread},\"ts\":");
    time(text, event.time_ns);
    if event.phase == Phase::Complete {
        text.push_str(",\"dur\":");
        time(text, event.value.saturating_sub(event.time_ns));
    }
    text.push_str(",\"args\":{");
}

/// Appends a time in microseconds; `ns` is in nanoseconds.
fn time(text: &mut String, ns: u64) {
    let _ = write!(text, "{}.{:03}", ns / 1000, ns % 1000);
}

/// Writer of the arguments of an event.
struct More<'a> {
    text: &'a mut String,
    /// DTL_TRACE_HAS_ bits of the arguments that the event has; the others are omitted.
    has: u32,
    is_first: bool,
}

impl More<'_> {
    fn key(&mut self, key: &str) {
        let comma = if std::mem::replace(&mut self.is_first, false) { "" } else { "," };
        let _ = write!(self.text, "{comma}\"{key}\":");
    }

    fn number(&mut self, bit: u32, key: &str, value: impl std::fmt::Display) {
        if self.has & bit != 0 {
            self.key(key);
            let _ = write!(self.text, "{value}");
        }
    }

    fn text<T: AsRef<str>>(&mut self, bit: u32, key: &str, value: impl FnOnce() -> T) {
        if self.has & bit != 0 {
            self.key(key);
            quoted(self.text, value().as_ref());
        }
    }
}

/// Appends a string in JSON format.
fn quoted(text: &mut String, value: &str) {
    text.push('"');
    for char in value.chars() {
        match char {
            '"' | '\\' => text.extend(['\\', char]),
            char if char.is_control() => drop(write!(text, "\\u{:04x}", u32::from(char))),
            char => text.push(char),
        }
    }
    text.push('"');
}

#[cfg(test)]
#[path = "tests/text.rs"]
mod tests;
