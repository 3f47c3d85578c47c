//! `dtl-ctk report`: named tests and costs on one page; `dtl-ctk compare`: two of them.

use crate::api;
use crate::drive;
use crate::kit::calls::field;
use crate::kit::costs::{self, Costs, Measured};
use crate::kit::outcome::{errln, outln};
use crate::kit::page;
use crate::kit::rank::Rank;
use crate::kit::report::Report;
use crate::kit::slot_comm::{Place, SlotComm};
use crate::kit::subject::Subject;
use crate::kit::vtables;
use crate::options::Run;
use crate::session::Session;
use crate::worker::{self, CANNOT, Halt, on_ranks, on_threads};
use crate::{is_launched, misused, stop};
use clap::Args;
use dtl_sys::*;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Options of `report`.
#[derive(Args, Debug)]
pub(crate) struct Publish {
    #[command(flatten)]
    run: Run,

    /// Write the page to this file, and its JSON beside it (extension .json), instead of standard
    /// output; --json names another file
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the named tests, measures costs, and writes the page.
pub(crate) fn report(mut options: Publish) -> ExitCode {
    options.run.named.quiet = true;
    if let Err(error) = options.run.check() {
        return misused(&error);
    }
    if options.run.is_random() || is_launched() {
        return misused("report runs named tests and starts their ranks itself");
    }
    // The run takes minutes: a file that cannot be written is reported before it.
    for path in options.output.iter().chain(&options.run.named.json) {
        if let Err(error) = OpenOptions::new().append(true).create(true).open(path) {
            errln!("dtl-ctk: {}: {error}", path.display());
            return ExitCode::from(CANNOT);
        }
    }
    stop::listen();
    let done = drive::results(&options.run, false).and_then(|report| {
        publish(&options, &report).map_err(|error| (CANNOT, error))?;
        drive::verdict(&report)
    });
    let ended = done.unwrap_or_else(|(code, text)| {
        errln!("dtl-ctk: {text}");
        ExitCode::from(code)
    });
    stop::status().unwrap_or(ended)
}

pub(crate) fn compare(first: &Path, second: &Path) -> ExitCode {
    let both = page::read(first).and_then(|first| Ok((first, page::read(second)?)));
    match both.and_then(|(first, second)| page::compare([&first, &second])) {
        Ok((page, is_different)) => {
            outln!("{}", page.trim_end());
            ExitCode::from(u8::from(is_different))
        }
        Err(error) => misused(&error),
    }
}

/// Measures costs, and writes the page and its JSON.
fn publish(options: &Publish, report: &Report) -> Result<(), String> {
    let (mut facts, mut notes, mut costs) = (BTreeMap::new(), Vec::new(), Measured::new());
    let has_ranks = report.entries.iter().any(|entry| entry.test.starts_with("comm."));
    let rounds = [Costs::Slots, Costs::Ranks].repeat(if has_ranks { 3 } else { 0 });
    for what in std::iter::once(Costs::Alone).chain(rounds) {
        // After a failure the others would fail in the same way, each after its time limit.
        if !notes.is_empty() {
            break;
        }
        let session = Session::new(&options.run, what != Costs::Alone, "");
        let lines = session.and_then(|session| session.costs(what)).map_err(|(_, text)| text)?;
        for [kind, name, value] in lines {
            match kind.as_str() {
                "i" => drop(facts.insert(name, value)),
                "s" => costs.entry(name).or_default()[0].extend(value.parse::<f64>()),
                "l" => costs.entry(name).or_default()[1].extend(value.parse::<f64>()),
                // There is no table.
                "A" => {}
                _ => notes.push(value),
            }
        }
    }
    let json = page::value(report, facts, costs, &notes);
    let text = page::page(report, &json);
    let beside = options.output.as_ref().map(|path| path.with_extension("json"));
    let files = [
        (options.run.named.json.as_ref().or(beside.as_ref()), format!("{json:#}\n")),
        (options.output.as_ref(), text.clone()),
    ];
    for (path, text) in files {
        let Some(path) = path else { continue };
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if options.output.is_none() {
        outln!("{}", text.trim_end());
    }
    Ok(())
}

/// Measures the costs that the command line of a worker names, and reports a line for each; with
/// those of one process also facts about the backend.
pub(crate) fn measure(run: &Run, report: &worker::Report) -> Result<(), Halt> {
    let row = |kind, name: &str, ns: Option<f64>| {
        ns.iter().for_each(|ns| report.write(kind, 0, name, &ns.to_string()));
    };
    let threads = run.worker.threads;
    match run.worker.costs {
        Some(Costs::Slots) => {
            let vtables = worker::tables(run)?;
            if vtables.tables.comm.is_none() {
                return Err(worker::without_comm());
            }
            let limit = Duration::from_nanos(run.call_ns());
            let go = |place: &Place| {
                costs::slots_of_rank(&SlotComm::open(vtables, place, limit)?, &row)?;
                Ok(true)
            };
            if threads == 0 {
                return go(&worker::place()).map(drop);
            }
            let place = |rank| Place { rank, size: threads as i32, job: api::own_job() };
            on_threads::<Halt>(run, threads, |rank| go(&place(rank))).map(drop)
        }
        Some(Costs::Ranks) => {
            let kind = worker::kind(run)?;
            let go = |_, comm| {
                let world = Rank::of(comm, &kind, run.call_ns(), run.no_time_limit)?;
                costs::library_of_rank(&world, &row)?;
                Ok(true)
            };
            on_ranks::<Halt>(run, &kind, threads, go).map(drop)
        }
        _ => {
            let subject = Subject::of(worker::backend(run)?)?;
            facts(run, &subject, &|name, value| report.write('i', 0, name, value));
            Ok(costs::alone(&subject, vtables::tables(), &row)?)
        }
    }
}

/// Reports what is known about library and backend: versions, file, devices.
fn facts(run: &Run, subject: &Subject, fact: &dyn Fn(&str, &str)) {
    // SAFETY: a text of the library's own, valid as long as the backend is registered.
    let text = |text: *const c_char| unsafe { CStr::from_ptr(text) }.to_string_lossy();
    fact("library", &text(dtl_version_string()));
    fact("backend", &text(dtl_backend_name(subject.backend.handle)));
    let (mut count, mut plugin) = (0, DTL_PLUGIN_INFO_INIT);
    // SAFETY: the output is a local.
    let counted = unsafe { dtl_plugin_count(&raw mut count) };
    // The file was loaded last. SAFETY: the output is a local that begins with its size.
    let found = unsafe { dtl_plugin_at(count.wrapping_sub(1), &raw mut plugin) };
    if run.plugin.is_some() && (counted, found) == (DTL_SUCCESS, DTL_SUCCESS) {
        fact("plugin", &text(plugin.path));
        fact("plugin version", &text(plugin.version));
        fact("plugin description", &text(plugin.description));
    }
    for device in 0..subject.devices {
        if let Ok(info) = subject.backend.device_info(device) {
            fact(&format!("device {device}"), &field(&info.name).unwrap_or_default());
        }
    }
}
