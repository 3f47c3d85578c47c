//! Tests of the generated Fortran: what it takes from the description.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::{plain, raw, statement, typed};
use serde_json::{Value, json};

/// Returns a parameter that is a pointer.
fn pointer(name: &str, to: &str, facts: Value) -> Value {
    let is_const = facts["direction"] == "in";
    let mut one = json!({ "name": name,
        "type": { "kind": "pointer", "const": is_const, "to": { "kind": "name", "name": to } } });
    one.as_object_mut().unwrap().extend(facts.as_object().unwrap().clone());
    one
}

fn value(name: &str, ty: &str) -> Value {
    json!({ "name": name, "type": { "kind": "name", "name": ty } })
}

/// Returns a description with one function that returns a status.
fn api(name: &str, parameters: Vec<Value>) -> Value {
    let function = json!({ "kind": "function", "name": name, "text": "Does it. At once.",
        "parameters": parameters,
        "returns": { "type": { "kind": "name", "name": "dtl_status_t" } } });
    json!({ "sections": [{ "title": "All.", "items": [function] }] })
}

/// Returns a function that gathers, with blocks of `count` elements.
fn gather(until: Option<&str>) -> Value {
    let facts = |length: &str, direction: &str, in_place: bool| {
        let mut facts = json!({ "len": length, "direction": direction, "opt": "count==0" });
        if in_place {
            facts["in_place"] = true.into();
        }
        if let Some(until) = until {
            facts["until"] = until.into();
        }
        facts
    };
    api(
        "dtl_comm_collect",
        vec![
            value("comm", "dtl_comm_t"),
            pointer("sbuf", "void", facts("count*dtype", "in", true)),
            value("count", "uint64_t"),
            pointer("rbuf", "void", facts("size(comm)*count*dtype", "inout", false)),
            value("dtype", "dtl_dtype_t"),
        ],
    )
}

#[test]
fn counts_are_those_of_the_buffers() {
    let text = typed::procedures(&gather(None)).unwrap();
    for line in [
        "subroutine comm_collect(comm, sbuf, rbuf, status)",
        "    ELEMENT, intent(in), contiguous, target, dimension(..) :: sbuf",
        "    n_count = ELEMENTS(sbuf)",
        "subroutine comm_collect_in_place(comm, sbuf, rbuf, status)",
        "    type(dtl_in_place_t), intent(in) :: sbuf",
        "    n_count = ELEMENTS(rbuf) / ranks(comm)",
    ] {
        assert!(text.lines().any(|one| one == line), "no line {line} in\n{text}");
    }
    let one_line = text.replace(" &\n        ", " ");
    assert!(one_line.contains("\"rbuf\", ELEMENTS(rbuf), n_count * ranks(comm), status)) return"));
    assert!(!text.contains("asynchronous, "), "the call blocks:\n{text}");
}

#[test]
fn buffers_in_flight_are_asynchronous_and_contiguous() {
    let text = typed::procedures(&gather(Some("request"))).unwrap();
    let declaration = "ELEMENT, intent(in), asynchronous, target, dimension(..) :: sbuf";
    assert!(text.contains(declaration), "{text}");
    let check = "is_contiguous(sbuf) .or. size(sbuf, kind=c_int64_t) <= 1, status)) return";
    assert!(text.replace(" &\n        ", " ").contains(check), "{text}");
}

#[test]
fn buffers_may_be_addresses() {
    let text = plain::module(&gather(None)).unwrap();
    let head = "subroutine comm_collect_call(comm, sbuf, count, rbuf, dtype, status)";
    assert!(text.contains(head), "{text}");
    assert!(text.contains("type(c_ptr), value :: sbuf"), "{text}");
    let head = "subroutine comm_collect_in_place_call(comm, sbuf, count, rbuf, dtype, status)";
    assert!(
        text.contains(head) && text.contains("type(dtl_in_place_t), intent(in) :: sbuf"),
        "{text}"
    );
}

#[test]
fn counts_may_be_default_integers() {
    let blocks = api(
        "dtl_comm_blocks",
        vec![
            value("comm", "dtl_comm_t"),
            pointer("rbuf", "void", json!({ "len": "?", "direction": "inout" })),
            pointer(
                "rcounts",
                "uint64_t",
                json!({ "len": "size(comm)", "direction": "in", "opt": "rank!=root" }),
            ),
            value("dtype", "dtl_dtype_t"),
            value("disp", "uint64_t"),
            value("root", "int32_t"),
        ],
    );
    let text = typed::procedures(&blocks).unwrap().replace(" &\n        ", " ");
    for part in [
        "procedure comm_blocks, comm_blocks_narrow",
        "if (is_negative(\"dtl_comm_blocks\", \"disp\", disp, status)) return",
        "if (has_negative(\"dtl_comm_blocks\", \"rcounts\", ranks(comm), status, rcounts))",
        "integer(c_int32_t), intent(in), contiguous, dimension(:), optional :: rcounts",
        "integer(c_int32_t), value :: disp",
        "if (present(rcounts)) allocate (n_rcounts, source=int(rcounts, c_int64_t))",
        "call comm_blocks(comm, rbuf, n_rcounts, int(disp, c_int64_t), root, status)",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
}

#[test]
fn functions_that_c_calls_are_procedures() {
    let mut all = api("dtl_thing_set", vec![value("fn", "dtl_thing_fn_t")]);
    let user = value("user", "uint64_t");
    let callback = json!({ "kind": "callback", "name": "dtl_thing_fn_t", "text": "Does it.",
        "parameters": [user, pointer("text", "char", json!({ "direction": "in" }))],
        "returns": { "type": { "kind": "name", "name": "dtl_status_t" } } });
    all["sections"][0]["items"].as_array_mut().unwrap().push(callback);
    let text = raw::module(&all).unwrap();
    for line in [
        "    function dtl_thing_fn_t(user, text) bind(c)",
        "        type(c_ptr), value :: text",
        "        integer(c_int32_t) :: dtl_thing_fn_t",
    ] {
        assert!(text.lines().any(|one| one == line), "no line {line} in\n{text}");
    }
    let text = plain::module(&all).unwrap();
    for line in [
        "    procedure thing_set_call, thing_set_procedure",
        "    procedure(dtl_thing_fn_t) :: fn",
        "    call finish(c_dtl_thing_set(c_funloc(fn)), \"dtl_thing_set\", status)",
    ] {
        assert!(text.lines().any(|one| one == line), "no line {line} in\n{text}");
    }
}

#[test]
fn texts_and_sizes_of_arrays_are_fortrans() {
    let text = plain::module(&api(
        "dtl_thing_find",
        vec![
            pointer("name", "char", json!({ "direction": "in" })),
            pointer("hint", "char", json!({ "direction": "in", "opt": true })),
            pointer("sizes", "uint32_t", json!({ "direction": "in", "len": "n" })),
            value("n", "uint32_t"),
            pointer("why", "char", json!({ "direction": "out", "len": "cap" })),
            value("cap", "uint64_t"),
        ],
    ))
    .unwrap();
    for part in [
        "subroutine thing_find_call(name, hint, sizes, why, status)",
        "n_n = size(sizes, kind=c_int32_t)",
        "n_cap = len(why, kind=c_int64_t) + 1",
        "trim(name) // c_null_char, hint_text, sizes, n_n, why_text, n_cap)",
        "why = why_text(:index(why_text, c_null_char) - 1)",
    ] {
        assert!(text.replace(" &\n        ", " ").contains(part), "no {part} in\n{text}");
    }
}

#[test]
fn unsigned_constants_keep_their_bits() {
    let constant = |name: &str, ty: &str, value: Value| json!({ "kind": "constant", "name": name, "type": ty, "value": value, "text": "A." });
    let items = vec![
        constant("DTL_A", "uint64_t", json!(u64::MAX)),
        constant("DTL_B", "uint32_t", json!(u32::MAX)),
        constant("DTL_C", "int32_t", json!(-3)),
    ];
    let text = raw::module(&json!({ "sections": [{ "title": "All.", "items": items }] })).unwrap();
    assert!(text.contains("DTL_A = int(z'ffffffffffffffff', c_int64_t)"), "{text}");
    assert!(text.contains("DTL_B = int(z'ffffffff', c_int32_t)"), "{text}");
    assert!(text.contains("DTL_C = -3_c_int32_t"), "{text}");
}

#[test]
fn long_statements_are_continued() {
    let mut text = String::new();
    statement(&mut text, 4, &format!("call f({})", ["argument"; 20].join(", ")));
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    let joined = text.replace(" &\n        ", " ");
    assert_eq!(joined.trim(), format!("call f({})", ["argument"; 20].join(", ")));
}
