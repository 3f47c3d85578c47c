//! Measures how long calls to a backend take, and prints the times in a table. This measurement is
//! not a test; it runs only with --time.

use crate::kit::calls::Backend;
use crate::kit::exec_calls::{Event, Executor, Job, Stream};
use crate::kit::outcome::{Called, Outcome, outln};
use crate::kit::subject::{Subject, pattern};
use std::time::{Duration, Instant};

/// Minimum time for the measurement of one row of the table.
const LONG: Duration = Duration::from_millis(60);

/// Measures and prints the table.
pub(crate) fn measure(s: &Subject) -> Outcome {
    outln!("{:<44} {:>12}", "call", "ns");
    let backend = s.backend;
    row("dtl_backend_supports", || backend.supports("no.such").map(|_| ()));
    if s.has("device") {
        row("dtl_backend_device_count", || backend.device_count().map(|_| ()));
        row("dtl_backend_set_device", || backend.set_device(0));
    }
    for kind in &s.kinds {
        let name = crate::kit::subject::kind_name(kind.word);
        for size in [64, 1 << 20] {
            row(&format!("dtl_mem_alloc + _free, {name}, {size} bytes"), || {
                backend.alloc(kind.word, size, 0)?.free()
            });
        }
        copies(backend, kind.word, name)?;
    }
    if !s.kinds.is_empty() {
        work(backend)?;
    }
    Ok(())
}

fn copies(backend: Backend, kind: u64, name: &str) -> Outcome {
    for size in [64, 65_536] {
        let (block, bytes) = (backend.alloc(kind, size, 0)?, pattern(1, size));
        row(&format!("dtl_mem_copy to {name}, {size} bytes"), || block.write(0, &bytes));
        row(&format!("dtl_mem_fill {name}, {size} bytes"), || block.fill(0, 1, size));
    }
    Ok(())
}

fn work(backend: Backend) -> Outcome {
    let (stream, event, job) = (Stream::new(backend, 0)?, Event::new(backend)?, Job::new(|| 0));
    row("dtl_stream_create + _destroy", || Stream::new(backend, 0)?.destroy());
    row("dtl_event_create + _destroy", || Event::new(backend)?.destroy());
    row("dtl_event_record + _sync", || event.record(&stream).and_then(|()| event.sync()));
    row("dtl_stream_host_callback + _synchronize", || {
        stream.callback(job).and_then(|()| stream.synchronize())
    });
    let (executor, piece) = (Executor::new(backend)?, |_, _| 0);
    row("dtl_executor_run", || executor.run(job));
    row("dtl_executor_parallel_for, 8 pieces", || executor.each(0, 8, 1, piece));
    Ok(())
}

/// Measures a call and prints a row with its time: the median of several rounds of 20 calls.
fn row(name: &str, mut call: impl FnMut() -> Called) {
    let mut rounds = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < LONG || rounds.len() < 3 {
        let start = Instant::now();
        for _ in 0..20 {
            if let Err(refused) = call() {
                outln!("{name:<44} {:>12} ({})", "-", refused.text);
                return;
            }
        }
        rounds.push(start.elapsed().as_nanos() / 20);
    }
    rounds.sort_unstable();
    outln!("{name:<44} {:>12}", rounds[rounds.len() / 2]);
}
