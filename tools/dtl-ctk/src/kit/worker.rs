//! The process that runs tests: writes a line to the report when a test begins and when it ends, so
//! that whoever watches knows which one it was if this process ends or hangs.

use crate::api::{self, Comm, Failure, name_of};
use crate::kit::bare::{self, Bare};
use crate::kit::calls::Backend;
use crate::kit::catalog::{self, Body, Group, Need, Test};
use crate::kit::options::Work;
use crate::kit::outcome::{Outcome, Refused, Stop, complain, skip};
use crate::kit::peer::{IN_THREADS, Peer};
use crate::kit::subject::Subject;
use crate::kit::wire::{Place, Wire};
use crate::kit::{step, stress, timing};
use crate::minimal;
use crate::sample::{Parts, fault};
use crate::tests::module;
use crate::user;
use dtl::tooling::launch;
use dtl_sys::*;
use std::ffi::{CStr, CString};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A test with its group.
type Named = (&'static Group, &'static Test);

/// The report's file. Each line is one write, so those of several ranks do not mix.
pub(crate) struct Report {
    file: File,
}

impl Report {
    /// A line: what happened, rank, test, detail.
    pub(crate) fn tell(&self, what: char, rank: i32, test: &str, detail: &str) {
        let detail = detail.replace(['\n', '\t'], " ");
        let _ = (&self.file).write_all(format!("{what}\t{rank}\t{test}\t{detail}\n").as_bytes());
    }

    fn ended(&self, rank: i32, test: &Test, outcome: &Outcome, begin: Instant) {
        match outcome {
            Ok(()) => self.tell('P', rank, test.name, &begin.elapsed().as_micros().to_string()),
            Err(Stop::Skipped(why)) => self.tell('S', rank, test.name, why),
            Err(Stop::Failed(text)) => self.tell('F', rank, test.name, text),
        }
    }
}

/// Why no test can be run at all.
enum Halt {
    /// There is no such backend, or its file cannot be loaded.
    Unable(String),
    /// It is there and cannot even be begun with: every test fails.
    Broken(String),
    /// It has nothing to test: every test is skipped.
    Absent(String),
    /// It is not for this machine: the same, and that is the exit status.
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

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Halt {
        Halt::Broken(failure.text)
    }
}

/// Runs the tests of the command line.
pub(crate) fn work(work: &Work) -> ExitCode {
    let Ok(file) = OpenOptions::new().append(true).open(&work.report) else {
        complain!("dtl-ctk: {}: cannot be opened", work.report.display());
        return ExitCode::from(crate::worker::CANNOT);
    };
    let report = Report { file };
    work.fault.as_deref().map(fault::choose);
    module::KERNELS.get_or_init(|| work.kernels.clone());
    step::write_beside(&work.report, place().rank.max(0));
    stress::SECONDS.store(work.stress, Ordering::Relaxed);
    let names = std::fs::read_to_string(&work.names).unwrap_or_default();
    let tests: Vec<Named> = names
        .lines()
        .filter_map(|name| catalog::find(name).or_else(|| stress::find(name)))
        .collect();
    let outcome = match tests.first().map(|(_, test)| test.body) {
        _ if work.time => time(work),
        Some(Body::Ranks(..)) => of_ranks(work, &report, &tests),
        Some(Body::Wire(..)) => of_wires(work, &report, &tests),
        _ => alone(work, &report, &tests),
    };
    let (what, text) = match outcome {
        // Tests of tables alone begin nothing, so there may be nothing to end.
        Ok(()) => {
            // SAFETY: the tests are over: nobody uses memory or names of the library any more.
            let ended = unsafe { dtl_finalize() };
            let is_well = [DTL_SUCCESS, DTL_ERROR_INVALID_STATE].contains(&ended);
            return if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        Err(Halt::Unable(text)) => ('X', text),
        Err(Halt::Broken(text)) => ('O', text),
        Err(Halt::Absent(text)) => ('A', text),
        Err(Halt::Away(text)) => ('U', text),
    };
    report.tell(what, 0, "", &text);
    ExitCode::from(crate::worker::CANNOT)
}

/// The backend of the command line: registered or loaded if need be.
fn backend(work: &Work) -> Result<Backend, Halt> {
    let said =
        |refused: Refused| Halt::Unable(format!("{} ({})", refused.text, name_of(refused.status)));
    if let Some(path) = &work.plugin {
        return bare::load(path).map_err(said);
    }
    let name = work.backend.as_deref().or(work.kind.as_deref()).unwrap_or("host");
    match name {
        "sample" => {
            return Parts::for_ranks(work.threads.max(1)).register("sample", 0).map_err(said);
        }
        "minimal" | "faulty" => {
            minimal::register(name, work.threads.max(1))
                .map_err(|failure| Halt::Unable(failure.text))?;
        }
        _ => {}
    }
    Backend::find(name).map_err(said)
}

/// Returns the tables of the backend for tests that call the slots, if the backend can run here.
fn tables(work: &Work) -> Result<&'static Bare, Halt> {
    let backend = backend(work)?;
    if let Err(why) = step::within("is_available", || backend.available()).map_err(Stop::from)? {
        return Err(Halt::Away(format!("the backend cannot run here: {why}")));
    }
    bare::tables().ok_or_else(|| {
        Halt::Absent("it is a backend of the library's own, without tables".to_owned())
    })
}

/// This process' place in its job; rank -1 if it has none.
fn place() -> Place {
    let launch = launch::from_environment().ok().flatten();
    let (rank, size, job) =
        launch.map_or((-1, -1, String::new()), |one| (one.rank, one.size, one.job));
    Place { rank, size, job: CString::new(job).unwrap_or_default() }
}

fn time(work: &Work) -> Result<(), Halt> {
    Ok(timing::measure(&Subject::of(backend(work)?)?)?)
}

/// Tests of one process. Those that need not be able to run here come first. The backend is known
/// before the others begin: what ends the process until then is no test's failure, but everybody's.
fn alone(work: &Work, report: &Report, tests: &[Named]) -> Result<(), Halt> {
    let any = |which: fn(&Body) -> bool| tests.iter().any(|(_, test)| which(&test.body));
    let bare = if any(|body| matches!(body, Body::Slots(_))) { Some(tables(work)?) } else { None };
    let mut failures = 0;
    let on_backend = any(|body| matches!(body, Body::Alone(_) | Body::Backend(_)));
    let backend = if on_backend { Some(backend(work)?) } else { None };
    for (_, test) in tests {
        if let (Body::Backend(body), Some(backend)) = (test.body, backend) {
            let begin = Instant::now();
            report.tell('B', 0, test.name, "");
            report.ended(0, test, &body(backend), begin);
        }
    }
    let subject = match backend.filter(|_| any(|body| matches!(body, Body::Alone(_)))) {
        Some(backend) => Some(Subject::of(backend)?),
        None => None,
    };
    for (group, test) in tests.iter().filter(|(_, test)| !matches!(test.body, Body::Backend(_))) {
        let begin = Instant::now();
        report.tell('B', 0, test.name, "");
        let outcome = match (test.body, &subject) {
            (Body::Tables(body), _) => body(),
            (Body::Slots(body), _) => bare.map_or(Ok(()), body),
            (Body::Alone(body), Some(subject)) => {
                fits(work, subject, group, test).and_then(|()| body(subject))
            }
            _ => Ok(()),
        };
        report.ended(0, test, &outcome, begin);
        failures += u64::from(is_failed(&outcome));
        if failures == work.max_failures && failures > 0 {
            break;
        }
    }
    Ok(())
}

/// Skips what the backend does not have.
fn fits(work: &Work, subject: &Subject, group: &Group, test: &Test) -> Outcome {
    let component = test.component();
    let about_tables =
        ["device.available", "device.supports"].iter().any(|slot| test.name.starts_with(slot));
    let about_either = group.needs.contains(&Need::DeviceMemory);
    let named = about_tables
        || about_either
        || component == "stress"
        || work.named.iter().any(|name| name == component);
    if !named && !subject.has(component) {
        skip!(
            "the backend has no {component} table (--component {component} tests what stands in \
             for it)"
        );
    }
    if let Some(need) = group.needs.iter().find(|need| !subject.meets(**need)) {
        skip!("the backend does not have {}", need.text());
    }
    Ok(())
}

/// Tests of ranks: this process is one, or all of them.
fn of_ranks(work: &Work, report: &Report, tests: &[Named]) -> Result<(), Halt> {
    user::make()?;
    let (timeout_ns, kind) = (work.call_ms * 1_000_000, kind(work)?);
    let limit = api::limit_of(timeout_ns, work.no_time_limit);
    let peer = |comm| Peer::of(comm, &kind, timeout_ns, work.no_time_limit);
    if work.threads == 0 {
        return Ok(rank(report, tests, &peer(Comm::open(&kind, None, limit)?)?)?);
    }
    IN_THREADS.store(kind != "self", Ordering::Relaxed);
    let all = if kind == "threads" { Comm::threads(work.threads, limit)? } else { Vec::new() };
    let opened: Vec<_> = all.into_iter().map(|comm| Mutex::new(Some(comm))).collect();
    on_threads(work, |number| {
        let place = (kind != "self").then_some((number, work.threads as i32));
        let open = || Comm::open(&kind, place, limit);
        let opened = opened.get(number as usize).and_then(|comm| comm.lock().ok()?.take());
        Ok(rank(report, tests, &peer(opened.map_or_else(open, Ok)?)?)?)
    })
}

/// Runs ranks that are threads of this process.
fn on_threads(work: &Work, go: impl Fn(i32) -> Result<(), Halt> + Sync) -> Result<(), Halt> {
    std::thread::scope(|scope| {
        let start = |number: i32| {
            let go = &go;
            scope.spawn(move || {
                step::write_beside(&work.report, number);
                go(number)
            })
        };
        let started: Vec<_> = (0..work.threads as i32).map(start).collect();
        let panicked = |_| Err(Halt::Broken("a rank's thread panicked".to_owned()));
        started.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(panicked))
    })
}

/// Tests of a comm table's slots: this process is one rank, or all of them.
fn of_wires(work: &Work, report: &Report, tests: &[Named]) -> Result<(), Halt> {
    let bare = tables(work)?;
    if bare.tables.comm.is_none() {
        return Err(Halt::Absent("the backend has no comm table".to_owned()));
    }
    let limit = Duration::from_millis(work.call_ms).min(Duration::from_secs(30));
    if work.threads == 0 {
        wire_rank(report, tests, bare, &place(), limit);
        return Ok(());
    }
    on_threads(work, |rank| {
        let place = Place { rank, size: work.threads as i32, job: api::own_job() };
        wire_rank(report, tests, bare, &place, limit);
        Ok(())
    })
}

/// Runs the tests of a comm table on one rank, on one communicator. The first test opens it, the
/// last one closes it.
fn wire_rank(
    report: &Report,
    tests: &[Named],
    bare: &'static Bare,
    place: &Place,
    limit: Duration,
) {
    let mut opened: Option<Wire> = None;
    for (at, (_, test)) in tests.iter().enumerate() {
        let Body::Wire(least, body) = test.body else { continue };
        let begin = Instant::now();
        report.tell('B', place.rank.max(0), test.name, "");
        let mut go = || {
            let wire = match &opened {
                Some(wire) => wire,
                None => opened.insert(Wire::open(bare, place, limit)?),
            };
            if wire.size < least {
                skip!("it takes {least} ranks, there are {}", wire.size);
            }
            body(wire)?;
            wire.meet(0x100 + at as u64)
        };
        let mut outcome = go();
        if let (Some(wire), true, true) = (&opened, at + 1 == tests.len(), !is_failed(&outcome)) {
            outcome = wire.close().and(outcome);
        }
        report.ended(place.rank.max(0), test, &outcome, begin);
        if is_failed(&outcome) {
            out_of_step();
        }
    }
}

fn is_failed(outcome: &Outcome) -> bool {
    matches!(outcome, Err(Stop::Failed(_)))
}

/// Ends the process after a failure, as the ranks are out of step afterwards.
fn out_of_step() -> ! {
    // Gives the other ranks time to report how the failure shows there.
    std::thread::sleep(Duration::from_millis(30));
    std::process::exit(1);
}

/// The kind of communicator that is tested.
fn kind(work: &Work) -> Result<String, Halt> {
    let built_in = |name: &str| ["self", "threads", "shm"].contains(&name);
    if let Some(kind) = work.kind.as_deref().filter(|kind| built_in(kind)) {
        return Ok(kind.to_owned());
    }
    let backend = backend(work)?;
    if backend.info().map_err(Stop::from)?.components & dtl_sys::DTL_COMPONENT_COMM == 0 {
        return Err(Halt::Absent("the backend has no comm table".to_owned()));
    }
    if let Err(why) = backend.available().map_err(Stop::from)? {
        return Err(Halt::Away(format!("the backend cannot run here: {why}")));
    }
    // SAFETY: the library's own text, valid as long as the backend is registered.
    let name = unsafe { CStr::from_ptr(dtl_sys::dtl_backend_name(backend.handle)) };
    Ok(name.to_string_lossy().into_owned())
}

/// One rank's way through the tests. After a failure the ranks are out of step: the process ends,
/// and whoever watches starts the tests that are left.
fn rank(report: &Report, tests: &[Named], world: &Peer) -> Outcome {
    for (_, test) in tests {
        let Body::Ranks(..) = test.body else { continue };
        let begin = Instant::now();
        report.tell('B', world.rank, test.name, "");
        let outcome = run(world, test);
        report.ended(world.rank, test, &outcome, begin);
        if is_failed(&outcome) {
            out_of_step();
        }
    }
    Ok(())
}

/// A test on a communicator of its own, which nothing of another test can reach.
fn run(world: &Peer, test: &Test) -> Outcome {
    let Body::Ranks(least, body) = test.body else { return Ok(()) };
    if world.size < least {
        skip!("it takes {least} ranks, there are {}", world.size);
    }
    if test.also == Some(Need::Cut) && !world.cuts() {
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

/// Under a launcher of the user's own: all ranks run the tests; rank 0 reports.
pub(crate) fn launched(
    work: &Work,
    tests: &[Named],
    mut tell: impl FnMut(&'static Test, &Outcome, f64),
) -> Result<(), String> {
    let said = |halt: Halt| match halt {
        Halt::Unable(text) | Halt::Broken(text) | Halt::Absent(text) | Halt::Away(text) => text,
    };
    together(work, tests, &mut tell).map_err(said)
}

fn together(
    work: &Work,
    tests: &[Named],
    tell: &mut dyn FnMut(&'static Test, &Outcome, f64),
) -> Result<(), Halt> {
    user::make()?;
    let (timeout_ns, kind) = (work.call_ms * 1_000_000, kind(work)?);
    let comm = Comm::open(&kind, None, api::limit_of(timeout_ns, work.no_time_limit))?;
    let world = Peer::of(comm, &kind, timeout_ns, work.no_time_limit)?;
    let control = world.dup()?;
    for (_, test) in tests {
        let Body::Ranks(..) = test.body else { continue };
        let begin = Instant::now();
        let mut outcome = run(&world, test);
        let failed = is_failed(&outcome);
        if let (Err(Stop::Failed(text)), true) = (&outcome, world.rank != 0) {
            complain!("dtl-ctk: rank {}: {}: {text}", world.rank, test.name);
        }
        let all = control.comm.gather_all([u64::from(failed), 0], world.size as u64);
        let all =
            all.map_err(|failure| Halt::Broken(format!("{}: {}", test.name, failure.text)))?;
        if let (Some(other), false) = (all.iter().position(|[failed, _]| *failed != 0), failed) {
            outcome =
                Err(Stop::Failed(format!("it failed on rank {other}: see its standard error")));
        }
        if world.rank == 0 {
            tell(test, &outcome, begin.elapsed().as_secs_f64());
        }
    }
    Ok(())
}
