//! Description of how a dispatcher selects the handler for a query, including the built-in rules of
//! the library.

use super::bitmap_index::{self, Slots};
use super::snapshot::{ChainEntry, OperationHandlers};
use super::text::{of_key, of_query};
use super::{Action, Dispatcher, Query, REGISTRATIONS, Registration, slots, template};
use crate::abi::devices::device::DTL_MEMORY_HOST_ACCESSIBLE;
use crate::abi::enums::DTL_ENUM_MEMORY;
use crate::abi::word::*;
use crate::runtime::registry::{self, Backend};
use crate::runtime::{device, enums};
use crate::sys::handles::epoch::{self, Guard};
use std::fmt::Write;
use std::sync::Arc;

/// Returns the name of a handler that redirects operations to `backend`; `None` if there is no such
/// handler.
pub fn handler_of(inside: &Guard, backend: &Arc<Backend>) -> Option<String> {
    let all = REGISTRATIONS.handles();
    let mut found = all.iter().filter_map(|id| REGISTRATIONS.get(inside, *id));
    let has_it = |known: &&Registration| {
        matches!(&known.action, Action::Backend(its)
        if Arc::ptr_eq(its, backend))
    };
    found.find(has_it).map(|known| known.name.clone())
}

/// Describes the selection for a query: one line for each handler whose key matches, the default
/// handler, the handlers that would match if the query had a value instead of DTL_DISPATCH_ANY in
/// some slots, and the selected handler. Calls the predicates of the matching handlers.
pub fn explain(dispatcher: &Dispatcher, inside: &Guard, query: &Query) -> String {
    let mut text = format!("{}\n", of_query(query));
    if let Some(operation) = dispatcher.tables.get(inside).of(template(query.operation)) {
        walk(&mut text, operation, query);
    }
    let choice = match dispatcher.choose(inside, query) {
        Ok(chosen) => format!("chosen: \"{}\"", chosen.name),
        Err(error) => format!("refused: {error}"),
    };
    text + &choice + "\n"
}

fn walk(text: &mut String, operation: &OperationHandlers, query: &Query) {
    let queried = slots(query);
    for (_, entry) in operation.predicated.fitting(&queried) {
        let of = &entry.registration;
        let verdict = match of.accepts(query) {
            Ok(true) => "its predicate is true".to_owned(),
            Ok(false) => "its predicate is false".to_owned(),
            Err(error) => format!("its predicate fails ({error})"),
        };
        line(text, entry, &format!("priority {}, {verdict}", of.priority));
    }
    for (_, entry) in operation.plain.fitting(&queried) {
        line(text, entry, "no predicate");
    }
    if let Some(default) = &operation.default {
        let _ = writeln!(text, "default: \"{}\"{}", default.name, what(default));
        if matches!(default.action, Action::Own) {
            ways(query).iter().for_each(|(key, how)| {
                let _ = writeln!(text, "  {} {how}", of_key(key));
            });
        }
    }
    // Handlers that could match if the open slots of the query had values.
    for chain in [&operation.predicated, &operation.plain] {
        for entry in &chain.entries {
            let may_fit = bitmap_index::may_fit(&entry.key, &queried);
            if may_fit && !bitmap_index::fits(&entry.key, &queried) {
                let of = &entry.registration;
                let _ =
                    writeln!(text, "elsewhere: {} \"{}\"{}", of_key(&entry.key), of.name, what(of));
            }
        }
    }
}

fn line(text: &mut String, entry: &ChainEntry, why: &str) {
    let of = &entry.registration;
    let _ = writeln!(text, "{} \"{}\": {why}{}", of_key(&entry.key), of.name, what(of));
}

/// Returns a string that describes what the library does if it selects the handler. The string is
/// empty if the library calls the handler's function.
fn what(registration: &Registration) -> String {
    match &registration.action {
        Action::Function => String::new(),
        Action::Own => {
            ", which goes by the backend that is asked, or whose memory or stream it is".to_owned()
        }
        Action::Backend(backend) => format!(", done by backend {}", backend.name()),
        Action::Illegal(reason) => format!(", illegal: {reason}"),
    }
}

/// Key of a built-in rule, and a description of its effect.
type Way = (Slots, String);

/// Returns the built-in rules that apply to the query's operation and whose keys match the query. A
/// slot of the query that contains DTL_DISPATCH_ANY matches every key.
fn ways(query: &Query) -> Vec<Way> {
    let mut ways = match query.operation {
        DTL_OPERATION_ALLOC => of_backends(allocations),
        DTL_OPERATION_COPY => copies(),
        DTL_OPERATION_LAUNCH => launches(),
        DTL_OPERATION_COMPILE => of_backends(compiles),
        _ => Vec::new(),
    };
    let queried = slots(query);
    ways.retain(|(key, _)| bitmap_index::may_fit(key, &queried));
    ways
}

fn of_backends(ways: impl Fn(&Backend) -> Vec<Way>) -> Vec<Way> {
    registry::all(&epoch::enter()).into_iter().flat_map(ways).collect()
}

/// Returns the memory kinds of a backend, each with a flag that is true if the host can access
/// memory of the kind.
fn kinds(backend: &Backend) -> Vec<(dtl_enum_word_t, bool)> {
    if backend.memory.is_none() {
        return Vec::new();
    }
    let count = enums::count(DTL_ENUM_MEMORY).unwrap_or(0) as u64;
    let of = |index: u64| {
        let kind = enums::at(DTL_ENUM_MEMORY, index).ok()?;
        let info = device::kind_info(backend, kind).ok()?;
        Some((kind, info.properties & DTL_MEMORY_HOST_ACCESSIBLE != 0))
    };
    (0..count).filter_map(of).collect()
}

fn allocations(backend: &Backend) -> Vec<Way> {
    let line = |(kind, _)| {
        ([0, kind, 0], format!("memory of backend {}, if that is asked", backend.name()))
    };
    kinds(backend).into_iter().map(line).collect()
}

/// Returns the built-in rules for copies between the host and each memory kind, and between the
/// memory kinds of one backend.
fn copies() -> Vec<Way> {
    let host = (DTL_MEMORY_HOST, true);
    let mut ways = vec![([host.0, host.0, 0], "by the host".to_owned())];
    ways.extend(of_backends(|backend| {
        let mut sides = kinds(backend);
        sides.retain(|side| side.0 != host.0);
        sides.insert(0, host);
        let pairs = sides.iter().flat_map(|from| sides.iter().map(move |to| (from, to)));
        let others = pairs.filter(|(from, to)| (from.0, to.0) != (host.0, host.0));
        others.map(|(from, to)| ([from.0, to.0, 0], copy(backend, from.1 && to.1))).collect()
    }));
    let between = "between two backends, neither of which the host can reach: through the host, 4 \
        MiB at a time";
    ways.push(([DTL_MEMORY_DEVICE, DTL_MEMORY_DEVICE, 0], between.to_owned()));
    ways
}

fn copy(backend: &Backend, is_reached: bool) -> String {
    let how = match (&backend.transfer, is_reached) {
        (Some(_), _) => "by its transfer",
        (None, true) => "by the host, which can reach it",
        (None, false) => "not at all, it has no transfer",
    };
    format!("memory of backend {}: {how}", backend.name())
}

fn launches() -> Vec<Way> {
    let way = |schedule, how: &str| ([0, 0, schedule], how.to_owned());
    vec![
        way(0, "by the backend whose stream it is"),
        way(DTL_SCHEDULE_SEQUENTIAL, "the same; the host runs all blocks in order in one thread"),
        way(DTL_SCHEDULE_MULTICORE, "the same"),
        way(DTL_SCHEDULE_DEVICE, "the same"),
    ]
}

fn compiles(backend: &Backend) -> Vec<Way> {
    let name = backend.name();
    let how = format!("by backend {name}, if that is asked, in the languages that it knows");
    backend.modules.iter().map(|_| ([0; 3], how.clone())).collect()
}
