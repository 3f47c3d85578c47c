//! Sentences for the facts that the description states about parameters and calls.

use serde_json::Value;

/// Returns the sentences for the facts of a parameter, a field or a result.
pub(crate) fn of_parameter(one: &Value) -> Vec<String> {
    let text = |fact: &str| one[fact].as_str();
    let mut sentences = Vec::new();
    match (&one["opt"], &one["type"]["kind"]) {
        (Value::Bool(true), _) => sentences.push("May be NULL.".to_owned()),
        (Value::String(when), _) if when != "?" => {
            sentences.push(format!("May be NULL if {}.", condition(when)));
        }
        _ => {}
    }
    match &one["in_place"] {
        Value::Bool(true) => sentences.push("May be DTL_IN_PLACE.".to_owned()),
        Value::String(when) => {
            sentences.push(format!("May be DTL_IN_PLACE if {}.", condition(when)));
        }
        _ => {}
    }
    if let Some(length) = text("len").filter(|length| *length != "?") {
        sentences.push(match length.strip_suffix("*dtype") {
            Some(count) => format!("Length: {} elements of type dtype.", spaced(count)),
            None => format!("Length: {}.", spaced(length)),
        });
    }
    if let Some(end) = text("until") {
        sentences.push(match end.strip_prefix("call_of:") {
            Some(function) => format!("In use until {} returns.", or(function)),
            None => format!("In use until {}.", end_of_use(end)),
        });
    }
    if let Some(function) = text("owned") {
        sentences.push(format!("The caller ends it with {}.", or(function)));
    }
    if one["borrowed"] == true {
        sentences.push("The library owns it.".to_owned());
    }
    if let Some(life) = text("lives") {
        sentences.push(format!("The string is valid {}.", life_of(life)));
    }
    if let Some(names) = text("values") {
        sentences.push(format!("One of {}.", constants(names)));
    }
    if let Some(names) = text("flags") {
        sentences.push(format!("Any of {}, ored.", constants(names)));
    }
    if one["bool"] == true {
        sentences.push("0 or 1.".to_owned());
    }
    match text("rank") {
        Some("any") => sentences.push("A rank, DTL_ANY_SOURCE or DTL_PROC_NULL.".to_owned()),
        Some("null") => sentences.push("A rank or DTL_PROC_NULL.".to_owned()),
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
            sentences.push(format!("The call may block, at most for {limit}."));
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
