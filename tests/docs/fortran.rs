//! Tests of the blocks of Fortran: each compiles with the modules of `bindings/fortran`, which are
//! compiled once, and a program with the comment `run` runs.

use super::blocks::{assert_declared, blocks, fault_of, is_there, scratch, within};
use super::{Plugins, Program, compiled, documents, programs_in, root, run, stage};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sources of the module `dtl`, in the order in which they need each other.
const MODULES: [&str; 4] = ["dtl_c.f90", "dtl_support.f90", "dtl_types.F90", "dtl.f90"];

/// Folder with the compiled modules.
struct Modules(PathBuf);

impl Modules {
    fn new() -> Self {
        let modules = Modules(scratch("docs-fortran"));
        for name in MODULES {
            let source = root().join("bindings/fortran").join(name);
            compiled(modules.command().args(["-O0", "-c"]).arg(&source), name);
        }
        let mpi = within().join("mpi_f08.f90");
        compiled(modules.command().arg("-fsyntax-only").arg(mpi), "mpi_f08.f90");
        modules
    }

    /// Returns a call of the compiler that writes into the folder and finds its modules.
    fn command(&self) -> Command {
        let mut compiler = Command::new("gfortran");
        compiler.current_dir(&self.0).arg("-I").arg(root().join("bindings/fortran"));
        compiler
    }

    /// Writes the text of a block and returns a call of the compiler for it.
    fn block(&self, text: &str) -> Command {
        let source = self.0.join("block.f90");
        std::fs::write(&source, text).unwrap();
        let mut compiler = self.command();
        // A callback may have arguments that it does not need.
        compiler.args(["-std=f2018", "-Wall", "-Wno-unused-dummy-argument", "-Werror"]).arg(source);
        compiler
    }

    fn program(&self, program: &Program, stage: &Path) -> PathBuf {
        let output = stage.join("program");
        let mut compiler = self.block(&program.source);
        compiler.args(MODULES.map(|name| Path::new(name).with_extension("o")));
        compiler.arg("-L").arg(stage).arg("-ldtl").arg("-o").arg(&output);
        compiled(compiler.arg(format!("-Wl,-rpath,{}", stage.display())), &program.place);
        output
    }
}

#[test]
fn every_fortran_block_compiles() {
    if !is_there("gfortran", "gfortran") {
        return;
    }
    let modules = Modules::new();
    let found = blocks("fortran");
    for block in &found {
        if let Some(text) = fault_of(modules.block(&block.text).arg("-fsyntax-only"), "") {
            panic!("{} does not compile:\n{text}", block.place);
        }
        assert_declared(block);
    }
    assert!(found.len() >= 5, "only {}: is the search right?", found.len());
    let mut count = 0;
    for (document, path) in documents().iter().enumerate() {
        for program in programs_in(path, "```fortran").iter().filter(|p| p.ranks.is_some()) {
            let file = modules.program(program, &stage(&format!("docs-fortran-{count}")));
            run(program, &file, &Plugins::new(1000 + document));
            count += 1;
        }
    }
    assert!(count >= 3, "only {count} programs run: is the search right?");
}
