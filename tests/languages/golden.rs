//! golden: one program in five languages, see golden.c.

#![allow(clippy::print_stdout, reason = "the report is the output of the program")]

use dtl_binding::{
    Backend, Byte, Comm, Library, Module, Policy, Result, SUM, Source, Stream, Window, sys,
};
use std::io::Write;
use std::process::ExitCode;

/// Size of the report of a rank.
const REPORT: usize = 512;

fn device() -> Result<String> {
    let numbers: Vec<f64> = (0..1000).map(f64::from).collect();
    let mut back = [0.0; 1000];
    let host = Backend::find("host")?;
    let mut memory = host.alloc(sys::DTL_MEMORY_DEVICE, size_of_val(&numbers[..]), 0)?;
    memory.write(0, &numbers)?;
    memory.read(0, &mut back)?;
    memory.free()?;
    Ok(format!("device: the sum of the copies is {:.0}\n", back.iter().sum::<f64>()))
}

const SOURCE: &str = "#include \"dtl_kernel.h\"\n\
    DTL_KERNEL(twice, (DTL_GLOBAL float*, x), (unsigned, n))\n\
    {\n\
    \x20   const DTL_SIZE i = DTL_GLOBAL_ID(0);\n\
    \x20   if (i < n) x[i] = 2 * x[i] + 1;\n\
    }\n";

fn kernel() -> Result<String> {
    let mut x = [0.0_f32, 1.0, 2.0, 3.0];
    let n = x.len() as u32;
    let device = Backend::find("host")?.device(0);
    let stream = Stream::new(device)?;
    let source = Source { language: 0, bytes: SOURCE.as_bytes(), options: &[] };
    let module = Module::compile(device, &source)?;
    let twice = module.kernel("twice", Some("pI"))?;
    let launch = sys::dtl_launch_t { block: [n, 1, 1], ..sys::DTL_LAUNCH_INIT };
    let at = x.as_mut_ptr().expose_provenance().to_ne_bytes();
    // SAFETY: the address of `n` numbers, and their number; nothing else uses them until the work of
    // the stream is complete.
    unsafe { twice.launch(&stream, &launch, &[&at, &n.to_ne_bytes()]) }?;
    stream.synchronize()?;
    Ok(format!("kernel: 2 x + 1 is {:.0} {:.0} {:.0} {:.0}\n", x[0], x[1], x[2], x[3]))
}

fn policy() -> Result<String> {
    let mut line = "policy:".to_owned();
    let round_robin = Policy::new("round_robin", &[10, 20, 30], &sys::DTL_POLICY_OPTS_INIT)?;
    let key = sys::dtl_task_key_t { task: 0, variant: 0 };
    for _ in 0..5 {
        round_robin.submit_and_wait(key, sys::DTL_TIMEOUT_INFINITE, |value| {
            line += &format!(" {value}");
            Ok(())
        })?;
    }
    Ok(line + "\n")
}

fn error(comm: &Comm) -> String {
    let outcome = comm.send(&1_i32, 99, 0);
    outcome.map_or_else(
        |error| format!("error: {}: {}\n", error.status, error.text),
        |()| String::new(),
    )
}

/// Numbers that every rank must have a part in.
fn together(comm: &Comm, rank: i32, size: i32) -> Result<()> {
    let square = (f64::from(rank) + 1.0).powi(2);
    let (mut sum, mut received, mut all) = (0.0, -1, vec![0; size as usize]);
    comm.allreduce(&square, &mut sum, SUM)?;
    comm.sendrecv(&rank, (rank + 1) % size, 7, &mut received, (rank + size - 1) % size, 7)?;
    comm.gather(&received, &mut all, 0)?;
    let counter = Window::allocate(comm, if rank == 0 { 8 } else { 0 }, 8)?;
    let (one, mut before, mut count) = (i64::from(rank) + 1, 0, 0_i64);
    counter.lock(sys::DTL_LOCK_SHARED, 0, |epoch| epoch.fetch_op(&one, &mut before, 0, 0, SUM))?;
    comm.barrier()?;
    if rank == 0 {
        counter.lock(sys::DTL_LOCK_SHARED, 0, |epoch| epoch.get(&mut count, 0, 0))?;
        let ring: String = all.iter().map(|from| format!(" {from}")).collect();
        println!("ranks: {size}\nallreduce: the sum of the squares is {sum:.0}\nring:{ring}");
        println!("window: the counter is {count}");
    }
    counter.destroy()
}

fn run() -> Result<bool> {
    let library = Library::init()?;
    let comm = Comm::world()?;
    let (rank, size) = (comm.rank()?, comm.size()?);
    together(&comm, rank, size)?;
    let text = device()? + &kernel()? + &policy()? + &error(&comm);
    // The other languages end their text with NUL, too.
    let mut report = [0_u8; REPORT];
    report.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    let mut reports = vec![0_u8; REPORT * size as usize];
    comm.gather(Byte::of(&report), Byte::of_mut(&mut reports), 0)?;
    let mut is_good = 1;
    if rank == 0 {
        print!("{text}");
        for (other, bytes) in
            reports.chunks(REPORT).enumerate().filter(|(_, bytes)| *bytes != report)
        {
            let text: Vec<u8> = bytes.iter().copied().take_while(|byte| *byte != 0).collect();
            print!("rank {other} reports:\n{}", String::from_utf8_lossy(&text));
            is_good = 0;
        }
        println!("{}", if is_good == 1 { "every rank reports the same" } else { "WRONG" });
    }
    comm.bcast(&mut is_good, 0)?;
    library.finalize()?;
    if rank == 0 {
        println!("finalized");
    }
    Ok(is_good == 1)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Nobody can be told that standard error is closed.
            let _ = writeln!(std::io::stderr(), "golden: {error}");
            ExitCode::FAILURE
        }
    }
}
