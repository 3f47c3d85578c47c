//! Sentences for the facts that the description states about parameters and calls.

use crate::page::capital;
use serde_json::Value;

/// Texts of parameters that have none.
const PARAMETERS: [(&str, &str); 29] = [
    ("sbuf", "Buffer of the elements to send."),
    ("rbuf", "Buffer for the result."),
    ("buf", "Buffer of the elements."),
    ("count_per_rank", "Number of elements of each block."),
    ("scount", "Number of elements to send."),
    ("rcount", "Number of elements to receive."),
    ("scounts", "Number of elements of each block that is sent."),
    ("rcounts", "Number of elements of each block that is received."),
    ("sdispls", "Position of each block in `sbuf`, in elements."),
    ("rdispls", "Position of each block in `rbuf`, in elements."),
    ("root", "Rank of the root."),
    ("stag", "Tag of the message to send."),
    ("rtag", "Tag of the message to receive."),
    ("key", "Key of the attribute."),
    ("device", "Index of the device."),
    ("user", "Pointer that was passed with the function."),
    ("acc", "Partial result."),
    ("into", "Partial result that receives the other."),
    ("from", "Partial result to add."),
    ("in", "Elements of one operand."),
    ("inout", "Elements of the other operand, and the result."),
    ("args", "Addresses of the arguments."),
    ("begin", "First index."),
    ("end", "Index after the last."),
    ("arg", "Argument."),
    ("timeout_ns", "Time limit in nanoseconds."),
    ("out_free_bytes", "Receives the free memory in bytes."),
    ("out_total_bytes", "Receives the total memory in bytes."),
    ("out_wait", "Receives the work that the task left running."),
];

/// Returns the text of a parameter that has none, from its name, type and the other parameters.
pub(crate) fn unexplained(one: &Value, all: &[&Value]) -> String {
    let name = one["name"].as_str().unwrap_or_default();
    if let Some((_, text)) = PARAMETERS.iter().find(|(other, _)| *other == name) {
        return (*text).to_owned();
    }
    let is_pointer = one["type"]["kind"] == "pointer";
    let ty = if is_pointer { &one["type"]["to"]["name"] } else { &one["type"]["name"] };
    let counted = all.iter().find(|other| other["len"] == name);
    match (name, ty.as_str().unwrap_or_default()) {
        (_, "dtl_dtype_t") => "Type of an element.".to_owned(),
        (_, "dtl_reduce_op_t") => "Reduction operation.".to_owned(),
        (_, "dtl_win_t") => "Window.".to_owned(),
        (_, "dtl_enum_t") => "Enumeration.".to_owned(),
        (_, "dtl_enum_word_t") if name != "kind" => "Word of a member.".to_owned(),
        (_, "dtl_comm_t") => "Communicator.".to_owned(),
        ("count", _) => "Number of elements.".to_owned(),
        (_, "uint64_t") if counted.is_some() => {
            let array = counted.and_then(|array| array["name"].as_str()).unwrap_or_default();
            match name.ends_with("_bytes") {
                true => format!("Size of `{array}` in bytes."),
                false => format!("Number of elements of `{array}`."),
            }
        }
        ("out", ty) => capital(&spoken(ty.trim_start_matches("dtl_").trim_end_matches("_t"))),
        _ => match name.strip_prefix("out_") {
            Some(result) => format!("Receives the {}", spoken(result)),
            None => capital(&spoken(name)),
        },
    }
}

/// Returns a name as words, with a full stop.
fn spoken(name: &str) -> String {
    format!("{}.", name.replace('_', " "))
}

/// Returns the sentences for the facts of a parameter, a field or a result that its text does not
/// state.
pub(crate) fn of_parameter(one: &Value) -> Vec<String> {
    let text = |fact: &str| one[fact].as_str();
    let states = |words: &str| text("text").is_some_and(|text| text.contains(words));
    let mut sentences = Vec::new();
    for (fact, value) in [("opt", "NULL"), ("in_place", "DTL_IN_PLACE")] {
        match &one[fact] {
            _ if states(value) => {}
            Value::Bool(true) => sentences.push(format!("May be {value}.")),
            Value::String(when) if when != "?" => {
                sentences.push(format!("May be {value} if {}.", condition(when)));
            }
            _ => {}
        }
    }
    if let Some(length) = text("len").filter(|length| *length != "?") {
        let count = length.split('*').next().unwrap_or_default();
        let is_stated = states(&format!("`{count}`")) || (count == "1" && states("one element"));
        let sentence = match length.strip_suffix("*dtype") {
            Some(count) => format!("Length: {} elements of type dtype.", spaced(count)),
            None => format!("Length: {}.", spaced(length)),
        };
        sentences.extend((!is_stated).then_some(sentence));
    }
    if let Some(end) = text("until").filter(|_| !states("until")) {
        sentences.push(match end.strip_prefix("call_of:") {
            Some(function) => format!("In use until {} returns.", or(function)),
            None if end == "last_use" => "In use after the call.".to_owned(),
            None => format!("In use until {}.", end_of_use(end)),
        });
    }
    let is_owned = |functions: &&str| states("caller owns") || functions.split('|').any(&states);
    if let Some(function) = text("owned").filter(|functions| !is_owned(functions)) {
        sentences.push(format!("The caller ends it with {}.", or(function)));
    }
    let is_borrowed =
        ["library owns", "nothing to free", "do not free"].iter().any(|one| states(one));
    if one["borrowed"] == true && !is_borrowed {
        sentences.push("The library owns it.".to_owned());
    }
    if let Some(life) = text("lives").filter(|_| !states("alid")) {
        sentences.push(format!("Valid {}.", life_of(life)));
    }
    if let Some(names) = text("values").filter(|names| !states(names)) {
        sentences.push(format!("One of {}.", constants(names)));
    }
    if let Some(names) = text("flags") {
        sentences.push(format!("Any of {}, ored.", constants(names)));
    }
    let is_bool = ["1 or 0", "0 or 1", "1 if", "1: ", "1 = "].iter().any(|one| states(one));
    if one["bool"] == true && !is_bool {
        sentences.push("0 or 1.".to_owned());
    }
    match text("rank") {
        Some("any") if !states("DTL_ANY_SOURCE") => {
            sentences.push("A rank, DTL_ANY_SOURCE or DTL_PROC_NULL.".to_owned())
        }
        Some("null") if !states("DTL_PROC_NULL") => {
            sentences.push("A rank or DTL_PROC_NULL.".to_owned())
        }
        _ => {}
    }
    sentences
}

/// Returns the sentences for the facts of a call.
pub(crate) fn of_call(function: &Value) -> Vec<String> {
    let mut sentences = Vec::new();
    match &function["blocks"] {
        Value::Bool(true) => sentences.push("The call may block.".to_owned()),
        Value::String(limit) if limit == "comm" => {
            sentences.push("The call may block, at most for the communicator's time limit.".into());
        }
        Value::String(limit) => {
            sentences.push(format!("The call may block; {limit} limits the time."));
        }
        _ => {}
    }
    if let Some(of) = function["collective"].as_str() {
        sentences.push(format!("Collective: every rank of {of} calls it."));
    }
    if function["synchronised"] == true {
        sentences.push("No other thread may use the object during the call.".to_owned());
    }
    let threads = function["threads"].as_str().unwrap_or("any").trim_end_matches('.');
    let threads = match (threads, function["collective"].as_str()) {
        ("any", Some("comm")) => "any, one at a time for each communicator",
        ("any, several at once", _) => "any",
        (other, _) => other,
    };
    sentences.push(format!("Threads: {threads}."));
    if let Some(equivalent) = function["equivalent"].as_str() {
        sentences.push(format!("Equivalent: {equivalent}."));
    }
    sentences
}

/// Puts spaces around the operators of a condition.
fn condition(text: &str) -> String {
    text.replace("==", " is ")
        .replace("!=", " is not ")
        .replace("||", " or ")
        .replace("&&", " and ")
}

fn spaced(length: &str) -> String {
    length.replace('*', " x ").replace('+', " + ")
}

/// Returns a list of names as words: "a", "a or b".
fn or(names: &str) -> String {
    names.replace('|', " or ")
}

fn constants(names: &str) -> String {
    if names.ends_with('_') {
        format!("the {names}... constants")
    } else {
        names.replace('|', ", ")
    }
}

fn end_of_use(end: &str) -> &str {
    match end {
        "return" => "the call returns",
        "request" => "the request completes",
        "stream" => "the stream has executed the operation",
        "flush" => "the operation is flushed",
        "destroy" => "the object is destroyed",
        "unregister" => "the object is unregistered",
        "forever" => "the process ends",
        "event" => "the event completes",
        other => other,
    }
}

fn life_of(life: &str) -> &str {
    match life {
        "forever" => "until the process ends",
        "object" => "as long as the object",
        "thread" => "until the next call that fails in this thread",
        "call" => "during the call",
        other => other,
    }
}
