//! A worker is a process that runs tests or cases as one rank, as all ranks (threads), or without
//! ranks. It writes a line to its report file when a named test begins and when the test ends, so
//! that the driver process can name the test if the worker crashes or hangs.

use crate::api::{self, Comm};
use crate::case_run::CaseRun;
use crate::kit::calls::Backend;
use crate::kit::catalog::{self, Body, Need, Test};
use crate::kit::outcome::{Error, Failure, Outcome, Stop, errln, outln, skip};
use crate::kit::rank::{IN_THREADS, Rank};
use crate::kit::slot_comm::{Place, SlotComm};
use crate::kit::subject::Subject;
use crate::kit::vtables::{self, Vtables};
use crate::kit::{current_slot, stress, timing};
use crate::minimal;
use crate::options::Run;
use crate::publish;
use crate::sample::{Parts, fault};
use crate::tests::module;
use crate::user;
use dtl::tooling::launch;
use dtl_sys::*;
use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Exit status if the communicator could not be opened, or a file could not be written.
pub(crate) const CANNOT: u8 = 3;

/// Returns true for communicator kinds whose ranks are threads of one process.
pub(crate) fn is_threaded(kind: &str) -> bool {
    ["threads", "minimal", "faulty", "sample"].contains(&kind)
}

/// Runs the tests or cases that the command line selects.
pub(crate) fn work(run: &Run) -> ExitCode {
    if run.is_random() { cases(run) } else { tests(run) }
}

fn finalize() -> dtl_status_t {
    // SAFETY: tests and cases are over: nobody uses memory or names of the library any more.
    unsafe { dtl_finalize() }
}

/// Opens a communicator on this rank, or on all ranks that are threads of this process, and calls
/// `go` for each rank. Returns the first error, or true if `go` returned true for all ranks.
pub(crate) fn on_ranks<E: Send + From<Error> + From<Stop>>(
    run: &Run,
    kind: &str,
    threads: u64,
    go: impl Fn(i32, Comm) -> Result<bool, E> + Sync,
) -> Result<bool, E> {
    let limit = run.comm_limit_ns();
    if threads == 0 {
        let comm = api::open(kind, None, limit)?;
        return go(comm.rank()?, comm);
    }
    let all = if kind == "threads" { Comm::threads(threads as i32, limit)? } else { Vec::new() };
    let opened: Vec<_> = all.into_iter().map(|comm| Mutex::new(Some(comm))).collect();
    on_threads(run, threads, |rank| {
        let place = (kind != "self").then_some((rank, threads as i32));
        let opened = opened.get(rank as usize).and_then(|comm| comm.lock().ok()?.take());
        go(rank, opened.map_or_else(|| api::open(kind, place, limit), Ok)?)
    })
}

/// Runs ranks that are threads of this process.
pub(crate) fn on_threads<E: Send + From<Stop>>(
    run: &Run,
    threads: u64,
    go: impl Fn(i32) -> Result<bool, E> + Sync,
) -> Result<bool, E> {
    std::thread::scope(|scope| {
        let start = |rank: i32| {
            let go = &go;
            scope.spawn(move || {
                begin_steps(run, rank);
                go(rank)
            })
        };
        let started: Vec<_> = (0..threads as i32).map(start).collect();
        let panicked = |_| Err(Stop::Failed("a rank's thread panicked".to_owned()).into());
        let join =
            |thread: std::thread::ScopedJoinHandle<_>| thread.join().unwrap_or_else(panicked);
        let ended: Vec<Result<bool, E>> = started.into_iter().map(join).collect();
        ended.into_iter().try_fold(true, |all, passed| Ok(all & passed?))
    })
}

fn begin_steps(run: &Run, rank: i32) {
    if let Some(report) = run.worker.report.as_ref().filter(|_| !run.is_random()) {
        current_slot::write_beside(report, rank);
    }
}

/// Runs random cases.
fn cases(run: &Run) -> ExitCode {
    match user::make().map_err(Failure::from).and_then(|()| all_cases(run)) {
        // A launcher of MPI's takes a process for crashed that ends without.
        Ok(true) if finalize() == DTL_SUCCESS => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(failure) => {
            errln!("dtl-ctk: {}", failure.text);
            ExitCode::from(CANNOT)
        }
    }
}

fn all_cases(run: &Run) -> Result<bool, Failure> {
    let kind = run.kind.as_deref().unwrap_or_default();
    register(kind, run.ranks())?;
    let threads = if is_threaded(kind) { run.ranks() } else { 0 };
    on_ranks(run, kind, threads, |_, comm| {
        let (rank, ranks) = (comm.rank()?, comm.size()?);
        let report = run.worker.report.as_ref();
        let progress = report.and_then(|path| OpenOptions::new().write(true).open(path).ok());
        let cuts = api::cuts(kind, run.no_time_limit);
        let (rank, ranks) = (rank as u64, ranks as u64);
        let passed = one(&CaseRun { run, rank, ranks, comm, cuts, progress });
        if passed && rank == 0 && !run.worker.worker {
            // Under a launcher of the user's own, nobody else says so.
            let (count, seed) = (run.numbers().count(), run.random.seed);
            outln!("{kind}, {ranks} rank(s): {count} case(s) passed (seed {seed})");
        }
        Ok(passed)
    })
}

/// Runs the random test cases on one rank and prints the failure, if any. Returns true on success.
fn one(rank: &CaseRun) -> bool {
    rank.go().unwrap_or_else(|Failure { text, out_of_step }| {
        errln!("dtl-ctk: {text}");
        if out_of_step {
            // The others may wait for this rank: the launcher, or the end of the process, ends
            // them.
            std::process::exit(1);
        }
        false
    })
}

/// Registers this program's backend for communicators of kind `kind` with `ranks` ranks. Does
/// nothing for kinds that this program does not implement.
fn register(kind: &str, ranks: u64) -> Result<Option<Backend>, Error> {
    match kind {
        "sample" => Parts::for_ranks(ranks).register("sample", 0).map(Some),
        "minimal" | "faulty" => minimal::register(kind, ranks).map(|()| None),
        _ => Ok(None),
    }
}

/// Report file of the worker. Each line is written with one call, so that lines from different
/// ranks are not interleaved.
pub(crate) struct Report {
    file: File,
}

impl Report {
    /// Writes a line: event, rank, test, detail.
    pub(crate) fn write(&self, what: char, rank: i32, test: &str, detail: &str) {
        let detail = detail.replace(['\n', '\t'], " ");
        let _ = (&self.file).write_all(format!("{what}\t{rank}\t{test}\t{detail}\n").as_bytes());
    }

    fn ended(&self, rank: i32, test: &Test, outcome: &Outcome, begin: Instant) {
        match outcome {
            Ok(()) => self.write('P', rank, test.name, &begin.elapsed().as_micros().to_string()),
            Err(Stop::Skipped(why)) => self.write('S', rank, test.name, why),
            Err(Stop::Failed(text)) => self.write('F', rank, test.name, text),
        }
    }
}

/// Reason why no test can be run.
pub(crate) enum Halt {
    /// The backend does not exist, or its file cannot be loaded.
    Unable(String),
    /// The backend exists but fails before the first test begins: every test fails.
    Broken(String),
    /// The backend does not have the function tables under test: every test is skipped.
    Absent(String),
    /// The backend cannot run on this machine: every test is skipped, and the exit status indicates
    /// this.
    Away(String),
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Halt {
        match stop {
            Stop::Failed(text) => Halt::Broken(text),
            Stop::Skipped(why) => Halt::Away(why),
        }
    }
}

impl From<Error> for Halt {
    fn from(refused: Error) -> Halt {
        Halt::Broken(refused.to_string())
    }
}

/// Runs named tests.
fn tests(run: &Run) -> ExitCode {
    let (report, names) = (run.worker.report.clone(), run.worker.names.clone());
    let (report, names) = (report.unwrap_or_default(), names.unwrap_or_default());
    let Ok(file) = OpenOptions::new().append(true).open(&report) else {
        errln!("dtl-ctk: {}: cannot be opened", report.display());
        return ExitCode::from(CANNOT);
    };
    let report = Report { file };
    run.named.fault.as_deref().map(fault::choose);
    module::KERNELS.get_or_init(|| run.named.kernels.clone());
    begin_steps(run, place().rank.max(0));
    stress::SECONDS.store(run.named.stress.unwrap_or(0), Ordering::Relaxed);
    let names = std::fs::read_to_string(names).unwrap_or_default();
    let tests: Vec<&Test> = names.lines().filter_map(catalog::find).collect();
    let outcome = match tests.first().map(|test| test.body) {
        _ if run.worker.costs.is_some() => publish::measure(run, &report),
        _ if run.named.time => time(run),
        Some(Body::Ranks(_)) => of_ranks(run, &report, &tests),
        Some(Body::SlotComm(_)) => of_comm_slots(run, &report, &tests),
        _ => alone(run, &report, &tests),
    };
    let (what, text) = match outcome {
        // Tests of tables alone begin nothing, so there may be nothing to end.
        Ok(()) => match finalize() {
            DTL_SUCCESS | DTL_ERROR_INVALID_STATE => return ExitCode::SUCCESS,
            _ => return ExitCode::FAILURE,
        },
        Err(Halt::Unable(text)) => ('X', text),
        Err(Halt::Broken(text)) => ('O', text),
        Err(Halt::Absent(text)) => ('A', text),
        Err(Halt::Away(text)) => ('U', text),
    };
    report.write(what, 0, "", &text);
    ExitCode::from(CANNOT)
}

/// Returns the backend that the command line names. Registers or loads it if necessary.
pub(crate) fn backend(run: &Run) -> Result<Backend, Halt> {
    let said = |Error { text, status, .. }: Error| Halt::Unable(format!("{text} ({status})"));
    if let Some(path) = &run.plugin {
        return vtables::load(path).map_err(said);
    }
    let name = run.name().unwrap_or("host");
    match register(name, run.worker.threads.max(1)).map_err(said)? {
        Some(backend) => Ok(backend),
        None => Backend::find(name).map_err(said),
    }
}

/// Returns the backend that the command line names, if it can run on this machine.
fn here(run: &Run) -> Result<Backend, Halt> {
    let backend = backend(run)?;
    match current_slot::within("is_available", || backend.available())? {
        Ok(()) => Ok(backend),
        Err(why) => Err(Halt::Away(format!("the backend cannot run here: {why}"))),
    }
}

pub(crate) fn without_comm() -> Halt {
    Halt::Absent("the backend has no comm table".to_owned())
}

/// Returns the function tables of the backend, for tests that call their functions directly. Fails
/// if the backend cannot run here.
pub(crate) fn tables(run: &Run) -> Result<&'static Vtables, Halt> {
    here(run)?;
    vtables::tables().ok_or_else(|| {
        Halt::Absent("it is a backend of the library's own, without tables".to_owned())
    })
}

/// Returns the rank, the size and the job that a launcher has set for this process. Rank and size
/// are -1 without a launcher.
pub(crate) fn place() -> Place {
    let launch = launch::from_environment().ok().flatten();
    let (rank, size, job) =
        launch.map_or((-1, -1, String::new()), |one| (one.rank, one.size, one.job));
    Place { rank, size, job }
}

fn time(run: &Run) -> Result<(), Halt> {
    Ok(timing::measure(&Subject::of(backend(run)?)?)?)
}

/// Runs a test. Writes a line to the report before and after the test. Returns true if the test
/// failed.
fn reported(report: &Report, rank: i32, test: &Test, body: impl FnOnce() -> Outcome) -> bool {
    let begin = Instant::now();
    report.write('B', rank, test.name, "");
    let outcome = body();
    report.ended(rank, test, &outcome, begin);
    is_failed(&outcome)
}

/// Runs the tests that need only one process. Tests that apply even to a backend that cannot run
/// here are run first. The backend is initialized before the other tests begin, because a crash
/// during the initialization is a failure of all tests.
fn alone(run: &Run, report: &Report, tests: &[&Test]) -> Result<(), Halt> {
    let any = |which: fn(&Body) -> bool| tests.iter().any(|test| which(&test.body));
    let vtables =
        if any(|body| matches!(body, Body::Slots(_))) { Some(tables(run)?) } else { None };
    let on_backend = any(|body| body.is_of_subject() || matches!(body, Body::Backend(_)));
    let backend = if on_backend { Some(backend(run)?) } else { None };
    for test in tests {
        if let (Body::Backend(body), Some(backend)) = (test.body, backend) {
            reported(report, 0, test, || body(backend));
        }
    }
    let subject = backend.filter(|_| any(Body::is_of_subject)).map(Subject::of).transpose()?;
    let mut failures = 0;
    for test in tests.iter().filter(|test| !matches!(test.body, Body::Backend(_))) {
        let failed = reported(report, 0, test, || match (test.body, &subject) {
            (Body::Tables(body), _) => body(),
            (Body::Slots(body), _) => vtables.map_or(Ok(()), body),
            (body, Some(subject)) => {
                fits(run, subject, test)?;
                match body {
                    Body::Alone(body) => body(subject),
                    Body::OfKind(body, kind) => body(subject, kind),
                    Body::Between(body, kinds) => body(subject, kinds),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        });
        failures += u64::from(failed);
        if failed && Some(failures) == run.named.max_failures {
            break;
        }
    }
    Ok(())
}

/// Skips the test if the backend does not meet the test's requirements.
fn fits(run: &Run, subject: &Subject, test: &Test) -> Outcome {
    let component = test.component();
    let about_tables =
        ["device.available", "device.supports"].iter().any(|slot| test.name.starts_with(slot));
    let named = about_tables
        || test.needs.contains(&Need::DeviceMemory)
        || component == "stress"
        || run.named.component.iter().any(|name| name == component);
    if !named && !subject.has(component) {
        skip!(
            "the backend has no {component} table (--component {component} tests what stands in \
             for it)"
        );
    }
    if let Some(need) = subject.lacks(&test.needs) {
        skip!("the backend does not have {}", need.text());
    }
    Ok(())
}

/// Runs the tests that need a communicator. This process is one rank, or all ranks are threads of
/// this process.
fn of_ranks(run: &Run, report: &Report, tests: &[&Test]) -> Result<(), Halt> {
    user::make()?;
    let (kind, threads) = (kind(run)?, run.worker.threads);
    IN_THREADS.store(threads > 0 && kind != "self", Ordering::Relaxed);
    let go = |_, comm| -> Result<bool, Halt> {
        let world = Rank::of(comm, &kind, run.call_ns(), run.no_time_limit)?;
        for test in tests {
            // After a failure the ranks are out of step: the process ends, and whoever watches
            // starts the tests that are left.
            if reported(report, world.rank, test, || on_dup(&world, test)) {
                out_of_step();
            }
        }
        Ok(true)
    };
    on_ranks(run, &kind, threads, go).map(drop)
}

/// Runs the tests that call the functions of a comm table directly. This process is one rank, or
/// all ranks are threads of this process.
fn of_comm_slots(run: &Run, report: &Report, tests: &[&Test]) -> Result<(), Halt> {
    let vtables = tables(run)?;
    if vtables.tables.comm.is_none() {
        return Err(without_comm());
    }
    let limit = Duration::from_nanos(run.call_ns()).min(Duration::from_secs(30));
    let threads = run.worker.threads;
    if threads == 0 {
        slot_rank(report, tests, vtables, &place(), limit);
        return Ok(());
    }
    on_threads::<Halt>(run, threads, |rank| {
        let place = Place { rank, size: threads as i32, job: api::own_job() };
        slot_rank(report, tests, vtables, &place, limit);
        Ok(true)
    })
    .map(drop)
}

/// Runs the tests of a comm table on one rank, on one communicator. The first test opens the
/// communicator, and the last one closes it.
fn slot_rank(
    report: &Report,
    tests: &[&Test],
    vtables: &'static Vtables,
    place: &Place,
    limit: Duration,
) {
    let mut opened: Option<SlotComm> = None;
    for (at, test) in tests.iter().enumerate() {
        let Body::SlotComm(body) = test.body else { continue };
        let is_last = at + 1 == tests.len();
        let failed = reported(report, place.rank.max(0), test, || {
            let comm = match &opened {
                Some(comm) => comm,
                None => opened.insert(SlotComm::open(vtables, place, limit)?),
            };
            let outcome = enough(comm.size, test)
                .and_then(|()| body(comm))
                .and_then(|()| comm.meet(0x100 + at as u64));
            if is_last && !is_failed(&outcome) { comm.close().and(outcome) } else { outcome }
        });
        if failed {
            out_of_step();
        }
    }
}

fn is_failed(outcome: &Outcome) -> bool {
    matches!(outcome, Err(Stop::Failed(_)))
}

fn enough(ranks: i32, test: &Test) -> Outcome {
    if ranks < test.least {
        skip!("it takes {} ranks, there are {ranks}", test.least);
    }
    Ok(())
}

/// Exits the process after a failure, because the other ranks may wait for this rank forever.
fn out_of_step() -> ! {
    // Gives the other ranks time to report how the failure shows there.
    std::thread::sleep(Duration::from_millis(30));
    std::process::exit(1);
}

/// Returns the name of the communicator kind under test, for example "shm".
pub(crate) fn kind(run: &Run) -> Result<String, Halt> {
    let built_in = |name: &str| ["self", "threads", "shm"].contains(&name);
    if let Some(kind) = run.kind.as_deref().filter(|kind| built_in(kind)) {
        return Ok(kind.to_owned());
    }
    let backend = backend(run)?;
    if backend.info()?.components & DTL_COMPONENT_COMM == 0 {
        return Err(without_comm());
    }
    if let Err(why) = backend.available()? {
        return Err(Halt::Away(format!("the backend cannot run here: {why}")));
    }
    // SAFETY: the library's own text, valid as long as the backend is registered.
    let name = unsafe { CStr::from_ptr(dtl_backend_name(backend.handle)) };
    Ok(name.to_string_lossy().into_owned())
}

/// Runs a test on a duplicate of the communicator, isolated from the messages of other tests.
fn on_dup(world: &Rank, test: &Test) -> Outcome {
    let Body::Ranks(body) = test.body else { return Ok(()) };
    enough(world.size, test)?;
    if test.needs.contains(&Need::Cut) && !world.cuts() {
        skip!(
            "needs a time limit: without one, kind {} hands messages to a library that cuts them \
             its own way",
            world.kind
        );
    }
    let own = world.dup()?;
    body(&own)?;
    // All are done before anybody destroys: what a rank leaves behind is the test's business, not
    // the next one's.
    own.barrier()?;
    Ok(own.destroy()?)
}

/// Callback that gets a test, its result and its duration in seconds.
type OnResult<'a> = &'a mut dyn FnMut(&'static Test, &Outcome, f64);

/// Runs the tests on all ranks under the user's launcher. Only rank 0 calls `on_result`.
pub(crate) fn launched(
    run: &Run,
    tests: &[&'static Test],
    on_result: OnResult,
) -> Result<(), String> {
    let said = |halt: Halt| match halt {
        Halt::Unable(text) | Halt::Broken(text) | Halt::Absent(text) | Halt::Away(text) => text,
    };
    together(run, tests, on_result).map_err(said)
}

fn together(run: &Run, tests: &[&'static Test], on_result: OnResult) -> Result<(), Halt> {
    user::make()?;
    let kind = kind(run)?;
    let comm = api::open(&kind, None, run.comm_limit_ns())?;
    let world = Rank::of(comm, &kind, run.call_ns(), run.no_time_limit)?;
    let control = world.dup()?;
    for test in tests.iter().filter(|test| matches!(test.body, Body::Ranks(_))) {
        let begin = Instant::now();
        let mut outcome = on_dup(&world, test);
        let failed = is_failed(&outcome);
        if let (Err(Stop::Failed(text)), true) = (&outcome, world.rank != 0) {
            errln!("dtl-ctk: rank {}: {}: {text}", world.rank, test.name);
        }
        let all = api::gather_all(&control.comm, [u64::from(failed), 0], world.size as u64);
        let all = all.map_err(|refused| Halt::Broken(format!("{}: {refused}", test.name)))?;
        if let (Some(other), false) = (all.iter().position(|[failed, _]| *failed != 0), failed) {
            let text = format!("it failed on rank {other}: see its standard error");
            outcome = Err(Stop::Failed(text));
        }
        if world.rank == 0 {
            on_result(test, &outcome, begin.elapsed().as_secs_f64());
        }
    }
    Ok(())
}
