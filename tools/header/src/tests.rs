//! Tests of the description of the interface and of the headers: what they take from a source, and
//! what they refuse.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use crate::{api, doxygen, emit, facts::Facts, texts};
use std::collections::HashMap;
use std::path::PathBuf;

/// Folder with a small library, removed at the end.
struct Tree(PathBuf);

impl Tree {
    /// Creates the sources: a handle, an enumeration of statuses, and `function`.
    fn new(name: &str, function: &str) -> Tree {
        let root = std::env::temp_dir().join(format!("dtl-header-{}-{name}", std::process::id()));
        for folder in ["src/abi", "src/ffi"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("Cargo.toml"), "version = \"1.2.3\"\n").unwrap();
        let abi = "//! Types.\n
            pub type dtl_status_t = i32;
            /// A thing.
            /// dtl: ends(dtl_thing_make)
            #[repr(C)] pub struct dtl_thing_t { pub id: u64 }
            pub const DTL_MOST: u32 = 3;\n";
        std::fs::write(root.join("src/abi/mod.rs"), abi).unwrap();
        let ffi = format!("//! Functions.\n{function}\n");
        std::fs::write(root.join("src/ffi/mod.rs"), ffi).unwrap();
        Tree(root)
    }

    /// Returns the text of the header `name`.
    fn header(&self, name: &str) -> Result<String, String> {
        let headers = emit::headers(&self.0).map_err(|error| error.to_string())?;
        Ok(headers.into_iter().find(|(other, _)| *other == name).unwrap().1)
    }

    fn describe(&self) -> Result<serde_json::Value, String> {
        api::description(&self.0).map_err(|error| error.to_string())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Returns the source of a function that makes a thing.
fn make(docs: &str) -> String {
    format!(
        "/// Makes a thing.
        ///
        /// @param name  its name, which
        ///              may have two lines.
        /// @return DTL_ERROR_LIMIT: too many. Equivalent: malloc.
        {docs}
        #[unsafe(no_mangle)]
        pub unsafe extern \"C\" fn dtl_thing_make(
            name: *const c_char, data: *mut c_void, out: *mut dtl_thing_t,
        ) -> dtl_status_t {{ 0 }}"
    )
}

const COMPLETE: &str = "/// dtl:data inout len(DTL_MOST) opt
        /// dtl:out owned(dtl_thing_make)
        /// dtl:call blocks";

#[test]
fn a_function_is_described() {
    let description = Tree::new("whole", &make(COMPLETE)).describe().unwrap();
    let function = &description["sections"][1]["items"][0];
    assert_eq!(function["name"], "dtl_thing_make");
    assert_eq!(function["blocks"], true);
    assert_eq!(function["equivalent"], "malloc");
    assert_eq!(function["statuses"], serde_json::json!(["DTL_ERROR_LIMIT"]));
    let [name, data, out] = &function["parameters"].as_array().unwrap()[..] else { panic!() };
    assert_eq!(name["text"], "its name, which may have two lines.");
    assert_eq!(name["direction"], "in");
    assert_eq!((&data["direction"], &data["len"]), (&"inout".into(), &"DTL_MOST".into()));
    assert_eq!((&data["opt"], &out["opt"]), (&true.into(), &serde_json::Value::Null));
    assert_eq!((&out["direction"], &out["owned"]), (&"out".into(), &"dtl_thing_make".into()));
}

#[test]
fn what_is_missing_is_refused() {
    for (name, wrong, message) in [
        ("direction", COMPLETE.replace("inout ", ""), "data: in, out or inout?"),
        ("length", COMPLETE.replace("len(DTL_MOST) ", ""), "data: how long is it?"),
        ("expression", COMPLETE.replace("DTL_MOST", "cuont*2"), "cuont is no parameter"),
        ("constant", COMPLETE.replace("opt", "flags(DTL_LEAST)"), "DTL_LEAST is no constant"),
        ("owner", COMPLETE.replace("owned(dtl_thing_make)", "opt"), "out: whose is it?"),
        ("end", COMPLETE.replace("dtl_thing_make)", "dtl_gone)"), "there is no such function"),
        ("stranger", COMPLETE.replace("dtl:data", "dtl:date"), "dtl:date: there is no such"),
        ("fact", COMPLETE.replace("inout", "sideways"), "`sideways`: unknown"),
        ("call", COMPLETE.replace("opt", "until(call_of:dtl_gone)"), "there is no such function"),
        ("twice", format!("{COMPLETE}\n/// dtl:call blocks"), "blocks stands twice"),
    ] {
        let error = Tree::new(name, &make(&wrong)).describe().unwrap_err();
        assert!(error.contains(message), "{name}: {error}");
    }
}

#[test]
fn names_that_differ_in_case_are_refused() {
    let clash = format!("{}\npub const DTL_THING_MAKE: u32 = 1;", make(COMPLETE));
    let error = Tree::new("clash", &clash).describe().unwrap_err();
    assert!(error.contains("dtl_thing_make and DTL_THING_MAKE differ only in case"), "{error}");
}

#[test]
fn facts_of_one_name_may_take_two_lines() {
    let facts = Facts::read(["dtl:buf out", "text", "dtl:buf len(a*b) until(request)"]).unwrap();
    assert!(facts.has("buf", "out") && !facts.has("buf", "in"));
    assert_eq!(facts.find("buf", "len").unwrap().argument.as_deref(), Some("a*b"));
    assert!(Facts::read(["dtl:buf len(a"]).is_err());
}

#[test]
fn texts_are_taken_apart() {
    let lines = [
        "Sends.",
        "",
        "More",
        "of it:",
        "    a(1);",
        "    b(2);",
        "And so on.",
        "@param[in] a, b  both",
        "                 of them.",
        "@return as dtl_x, without DTL_ERROR_TIMEOUT;",
        "        DTL_ERROR_LIMIT. Equivalent:",
        "MPI_Send. In part. Threads: any.",
    ];
    let text = texts::read(&lines.map(str::to_owned));
    assert_eq!(text.body, "Sends.\n\nMore of it:\n    a(1);\n    b(2);\nAnd so on. In part.");
    assert_eq!(text.parameters["a"], "both of them.");
    assert_eq!(text.parameters["b"], "both of them.");
    assert_eq!(text.returns, "as dtl_x, without DTL_ERROR_TIMEOUT; DTL_ERROR_LIMIT.");
    let lines = ["A queue (Equivalent: cudaStream_t). Null: the default."];
    let inner = texts::read(&lines.map(str::to_owned));
    assert_eq!(inner.body, "A queue. Null: the default.");
    assert_eq!(inner.equivalent, "cudaStream_t");
    assert_eq!((text.equivalent.as_str(), text.threads.as_str()), ("MPI_Send", "any."));
}

#[test]
fn items_stand_where_the_source_says() {
    let tree = Tree::new("here", &format!("//! dtl: header(dtl_select.h)\n{}", make(COMPLETE)));
    let (users, select) = (tree.header("dtl.h").unwrap(), tree.header("dtl_select.h").unwrap());
    assert!(users.contains("\ntypedef struct dtl_thing_t dtl_thing_t;\n"), "{users}");
    assert!(users.contains("\nstruct dtl_thing_t {\n    uint64_t id;\n};\n"), "{users}");
    assert!(users.contains(" *   dtl_select.h\n *     Functions\n"), "{users}");
    assert!(!users.contains("dtl_thing_make(") && select.contains("dtl_thing_make("), "{select}");
    assert!(select.contains("\n/// @param[in] name its name, which may have two lines.\n"));
    let moved = make(&format!("{COMPLETE}\n/// dtl: section(abi/mod)"));
    let moved = Tree::new("moved", &format!("//! dtl: header(dtl_select.h)\n{moved}"));
    assert!(moved.header("dtl.h").unwrap().contains("dtl_thing_make("));
    let item = &moved.describe().unwrap()["sections"][0]["items"][3];
    assert_eq!((&item["name"], &item["header"]), (&"dtl_thing_make".into(), &"dtl.h".into()));
}

#[test]
fn headers_refuse_what_they_cannot_place_or_show() {
    for (name, source, message) in [
        ("section", "/// dtl: section(abi/gone)\npub const DTL_A: u32 = 1;", "no section abi/gone"),
        ("header", "//! dtl: header(dtl_gone.h)", "no header dtl_gone.h"),
        ("letter", "/// A \u{b5}s.\npub const DTL_A: u32 = 1;", "not ASCII: /// A"),
        ("title", "//! and `internal`.\n\n/// A.\npub const DTL_A: u32 = 1;", "one sentence"),
    ] {
        let source = format!("{source}\n{}", make(COMPLETE));
        let tree = Tree::new(name, &source);
        if name == "title" {
            let text = source.replacen("//! and", "//! Functions and", 1);
            std::fs::write(tree.0.join("src/ffi/mod.rs"), text).unwrap();
        }
        let error = tree.header("dtl.h").unwrap_err();
        assert!(error.contains(message), "{name}: {error}");
    }
}

#[test]
fn parameters_stand_one_by_one_with_their_direction() {
    let directions = [("a", "in"), ("b", "in,out")];
    let directions: HashMap<String, String> =
        directions.map(|(name, direction)| (name.to_owned(), direction.to_owned())).into();
    let before = "/// Does.\n///\n/// @param a, b  both\n///              of them.\n/// @return 0.\nint f;\n";
    let after = "/// Does.\n///\n/// @param[in] a     both of them.\n\
                 /// @param[in,out] b both of them.\n/// @return 0.\nint f;\n";
    assert_eq!(doxygen::parameters(before, &directions).unwrap(), after);
    assert!(doxygen::parameters("/// @param c  odd\n", &directions).is_err());
}

#[test]
fn macros_and_inline_functions_are_described() {
    let text = "/// Calls.\n/// Once.\n#define DTL_DO(x) \\\n    (x)\n\n/// Marks.\n#if A\n#define DTL_M a\n\
                #else\n#define DTL_M\n#endif\n\n#define DTL_GUARD_H\n\n/// Adds.\n\
                static inline DTL_CONSTEXPR int *dtl_add(int a)\n{\n}\n\n/// Not shown.\n#define DTL_X_ 1\n";
    let items = crate::macros::items(text, "dtl.h");
    let part = |key: &str| items.iter().map(|one| one[key].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(part("name"), ["DTL_DO", "DTL_M", "dtl_add"]);
    assert_eq!(part("declaration"), ["#define DTL_DO(x)", "#define DTL_M", "int *dtl_add(int a);"]);
    assert_eq!(part("text"), ["Calls. Once.", "Marks.", "Adds."]);
    assert_eq!(part("kind"), ["macro", "macro", "inline"]);
}

#[test]
fn the_raw_layer_of_python_has_every_item() {
    let more = "
        /// Does.
        /// dtl:user opaque
        pub type dtl_each_fn_t = Option<extern \"C\" fn(user: *mut c_void) -> dtl_status_t>;
        /// Sizes.
        #[repr(C)] pub struct dtl_sizes_t {
            /// sizeof.
            pub struct_size: u32,
            /// Their number.
            pub count: u32,
            /// Sizes.
            pub sizes: [u64; 3],
            /// Names.
            /// dtl: len(count)
            pub names: *const *const c_char,
            /// Does.
            pub each: dtl_each_fn_t,
        }
        /// Slots.
        #[repr(C)] pub struct dtl_thing_vtable_t {
            /// Counts.
            pub count: Option<extern \"C\" fn(this: *mut c_void, out: *mut i32) -> dtl_status_t>,
        }
        /// Too many.
        pub const DTL_ERROR_LIMIT: dtl_status_t = 416;";
    let tree = Tree::new("python", &format!("{more}\n{}", make(COMPLETE)));
    let files: HashMap<String, String> =
        crate::python::files(&tree.0).unwrap().into_iter().collect();
    let has = |file: &str, part: &str| {
        let text = &files[&format!("bindings/python/{file}")];
        assert!(text.contains(part), "{file} lacks {part:?}:\n{text}");
    };
    has("raw/cdef.h", "\ntypedef int32_t dtl_status_t;\n");
    has("raw/cdef.h", "\n#define DTL_MOST 3\n");
    has("raw/cdef.h", "\nstruct dtl_thing_t {\n    uint64_t id;\n};\n");
    has(
        "raw/cdef.h",
        "\n    uint64_t sizes[3];\n    const char *const *names;\n    dtl_each_fn_t each;\n",
    );
    has("raw/cdef.h", "\ntypedef dtl_status_t (*dtl_each_fn_t)(void *user);\n");
    has("raw/cdef.h", "\nextern \"Python\" dtl_status_t python_each(void *user);\n");
    has(
        "raw/cdef.h",
        "\ndtl_status_t dtl_thing_make(const char *name, void *data, dtl_thing_t *out);\n",
    );
    has("raw/cdef.h", "\nstatic dtl_sizes_t dtl_sizes_initial(void);\n");
    has("raw/initial.c", "    dtl_sizes_t value = DTL_SIZES_INIT;\n");
    has("dtl/_raw.pyi", "    DTL_MOST: int\n");
    has("dtl/_raw.pyi", "    python_each: CData\n");
    has("dtl/_raw.pyi", "    def dtl_sizes_initial(self) -> CData: ...\n");
    let made =
        "    def dtl_thing_make(self, name: CData, data: CData, out: CData, /) -> int: ...\n";
    has("dtl/_raw.pyi", made);
    has("dtl/constants.py", "\nclass Status(enum.IntEnum):\n");
    has("dtl/constants.py", "\n    LIMIT = 416\n");
    let slot = "    \"dtl_thing_vtable_t\": {\n        \"count\": \"this out\",\n    },\n";
    has("dtl/_slots.py", slot);
}
