//! Tests of device properties, and of synchronizing devices. Counting and selecting devices is
//! tested in `device`.

use crate::kit::prelude::*;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Alone "device.info.":
        name_is_text, pci_is_an_address, kind_is_a_device_kind, block_limits_agree,
        numa_node_is_plausible, same_each_time, keeps_the_callers_size, cut_struct_refused,
        beyond_count_refused = info_beyond;
    Alone "device.memory_info.":
        free_within_total, both_outputs_written, total_same_each_time, total_agrees_with_info,
        beyond_count_refused = memory_beyond;
    Alone "device.synchronize.":
        idle_returns = |s| Ok(s.backend.device_synchronize(0)?),
        waits_for_a_stream = |s| sync_after(s.backend, 1),
        waits_for_all_streams = |s| sync_after(s.backend, 3), every_device,
        beyond_count_refused = sync_beyond;
    Alone "device.dlpack.":
        type_is_one_of_dlpack, cpu_is_a_cpu, ids_are_distinct;
];

/// Calls `check` with the description of every device.
fn each_info(s: &Subject, check: impl Fn(i32, &dtl_sys::dtl_device_info_t) -> Outcome) -> Outcome {
    (0..s.devices).try_for_each(|device| check(device, &s.backend.device_info(device)?))
}

fn name_is_text(s: &Subject) -> Outcome {
    each_info(s, |device, info| match field(&info.name) {
        Some(name) if !name.trim().is_empty() => Ok(()),
        Some(_) => wrong!("device {device} has an empty name"),
        None => wrong!("the name of device {device} has no NUL or is not UTF-8"),
    })
}

fn pci_is_an_address(s: &Subject) -> Outcome {
    each_info(s, |device, info| {
        let Some(pci) = field(&info.pci) else { wrong!("device {device}: no NUL, or not UTF-8") };
        let form =
            pci.chars().map(|c| if c.is_ascii_hexdigit() { 'x' } else { c }).collect::<String>();
        let good = ["", "xxxx:xx:xx.x", "xxxxxxxx:xx:xx.x", "xx:xx.x"].contains(&form.as_str());
        check!(good, "device {device}: \"{pci}\" is no PCI address (0000:65:00.0)")
    })
}

fn kind_is_a_device_kind(s: &Subject) -> Outcome {
    each_info(s, |device, info| {
        let kind = info.kind;
        let good = kind == 0 || kind >> 48 == DTL_DEVICE_CPU >> 48;
        check!(good, "device {device}: {kind:#x} is no member of the device enumeration")
    })
}

fn block_limits_agree(s: &Subject) -> Outcome {
    each_info(s, |device, info| {
        let (threads, block) = (info.max_block_threads, info.max_block);
        let known = block.iter().all(|size| *size > 0) && threads > 0;
        let most = block.iter().fold(1u64, |all, size| all.saturating_mul(u64::from(*size)));
        let fits = !known || u64::from(threads) <= most;
        ensure!(fits, "device {device}: {threads} threads do not fit in {block:?}");
        let some = block.iter().any(|size| *size > 0);
        check!(!some || block[0] > 0, "device {device}: a block of {block:?} has no thread")
    })
}

fn numa_node_is_plausible(s: &Subject) -> Outcome {
    each_info(s, |device, info| {
        let node = info.numa_node;
        check!((-1..1024).contains(&node), "device {device} is on NUMA node {node}")
    })
}

fn same_each_time(s: &Subject) -> Outcome {
    each_info(s, |device, info| {
        let again = s.backend.device_info(device)?;
        let same = info.name == again.name
            && info.pci == again.pci
            && (info.kind, info.total_bytes, info.compute_units, info.numa_node)
                == (again.kind, again.total_bytes, again.compute_units, again.numa_node)
            && (info.max_block, info.max_grid) == (again.max_block, again.max_grid);
        check!(same, "device {device} is described differently the second time")
    })
}

fn keeps_the_callers_size(s: &Subject) -> Outcome {
    each_info(s, |device, info| {
        let (is, should) = (info.struct_size, size_of_val(info) as u32);
        check!(is == should, "device {device}: struct_size is {is}, the caller set {should}")
    })
}

fn cut_struct_refused(s: &Subject) -> Outcome {
    let mut info = DTL_DEVICE_INFO_INIT;
    info.struct_size = 16;
    info.name = [0x55; 128];
    info.total_bytes = 0x5555;
    let called = call!(dtl_device_info(s.backend.handle, 0, &raw mut info));
    refused(called, DTL_ERROR_INVALID_ARGUMENT, "struct_size 16")?;
    let kept = info.name == [0x55; 128] && info.total_bytes == 0x5555;
    check!(kept, "a call that failed wrote its output")
}

fn info_beyond(s: &Subject) -> Outcome {
    refused(s.backend.device_info(s.devices + 7), DTL_ERROR_OUT_OF_BOUNDS, "info(count + 7)")?;
    refused(s.backend.device_info(-1), DTL_ERROR_OUT_OF_BOUNDS, "info(-1)")
}

/// Returns the number of devices with their own memory; 1 if the backend has no device table.
fn memories(s: &Subject) -> i32 {
    if s.has("device") { s.devices } else { 1 }
}

/// Passes the free and the total memory of each device to `check`. Skips the test if the backend
/// does not report them.
fn each_memory(s: &Subject, check: impl Fn(i32, (u64, u64)) -> Outcome) -> Outcome {
    for device in 0..memories(s) {
        match optional(s.backend.device_memory(device))? {
            Some(memory) => check(device, memory)?,
            None => skip!("neither table has memory_info"),
        }
    }
    Ok(())
}

fn free_within_total(s: &Subject) -> Outcome {
    each_memory(s, |device, (free, total)| {
        check!(total == 0 || free <= total, "device {device}: {free} bytes are free of {total}")
    })
}

fn both_outputs_written(s: &Subject) -> Outcome {
    each_memory(s, |device, (free, total)| {
        let written = free != u64::MAX && total != u64::MAX;
        check!(written, "device {device}: free {free:#x}, total {total:#x}")
    })
}

fn total_same_each_time(s: &Subject) -> Outcome {
    each_memory(s, |device, (_, total)| {
        let again = s.backend.device_memory(device)?.1;
        check!(again == total, "device {device} had {total} bytes in all and has {again}")
    })
}

fn memory_beyond(s: &Subject) -> Outcome {
    let (beyond, count) = (s.backend.device_memory(memories(s)), memories(s));
    refused(beyond, DTL_ERROR_OUT_OF_BOUNDS, &format!("memory of device {count} of {count}"))?;
    refused(s.backend.device_memory(-1), DTL_ERROR_OUT_OF_BOUNDS, "memory of device -1")
}

fn total_agrees_with_info(s: &Subject) -> Outcome {
    if !s.has("device") {
        skip!("it has no device table, so no description");
    }
    each_memory(s, |device, (_, total)| {
        let told = s.backend.device_info(device)?.total_bytes;
        let agrees = told == 0 || total == 0 || told == total;
        check!(agrees, "device {device}: {total} bytes, its description says {told}")
    })
}

/// Queues slow work on `streams` streams, synchronizes the device, and checks that all work has
/// run.
fn sync_after(backend: Backend, streams: usize) -> Outcome {
    let started: Vec<Stream> =
        (0..streams).map(|_| Stream::new(backend, 0)).collect::<Result<_, _>>()?;
    let jobs: Vec<&'static Job> = started.iter().map(|_| slow(20)).collect();
    started.iter().zip(&jobs).try_for_each(|(stream, job)| stream.callback(job))?;
    backend.device_synchronize(0)?;
    let left = jobs.iter().filter(|job| job.runs() == 0).count();
    let what = "the device is said to be done; the work of";
    check!(left == 0, "{what} {left} of {streams} stream(s) is not")
}

fn every_device(s: &Subject) -> Outcome {
    (0..s.devices).try_for_each(|device| s.backend.device_synchronize(device)).map_err(Into::into)
}

fn sync_beyond(s: &Subject) -> Outcome {
    refused(s.backend.device_synchronize(s.devices), DTL_ERROR_OUT_OF_BOUNDS, "synchronize(count)")
}

/// Returns the DLPack device type and device id of every device.
fn numbers(s: &Subject) -> Outcome<Vec<(i32, i32)>> {
    let all = (0..s.devices)
        .map(|device| optional(s.backend.dlpack(device)))
        .collect::<Result<Vec<_>, _>>()?;
    match all.into_iter().collect::<Option<Vec<_>>>() {
        Some(numbers) => Ok(numbers),
        None => skip!("it has no DLPack numbers"),
    }
}

fn type_is_one_of_dlpack(s: &Subject) -> Outcome {
    for (kind, id) in numbers(s)? {
        ensure!((1..=32).contains(&kind) && id >= 0, "DLPack type {kind}, id {id}");
    }
    Ok(())
}

fn cpu_is_a_cpu(s: &Subject) -> Outcome {
    for (device, (kind, _)) in (0..).zip(numbers(s)?) {
        let is_cpu = s.backend.device_info(device)?.kind == DTL_DEVICE_CPU;
        let good = !is_cpu || [1, 3].contains(&kind);
        ensure!(good, "device {device} is a CPU, its DLPack type is {kind}");
    }
    Ok(())
}

fn ids_are_distinct(s: &Subject) -> Outcome {
    let mut all = numbers(s)?;
    all.sort_unstable();
    let twice = all.windows(2).find(|pair| pair[0] == pair[1]);
    check!(twice.is_none(), "two devices are both {twice:?}")
}
