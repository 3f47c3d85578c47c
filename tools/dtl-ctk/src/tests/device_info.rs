//! Tests of what devices tell of themselves, and of waiting for them. Counting and choosing:
//! `device`.

use crate::kit::calls::{Backend, field, no_device_info};
use crate::kit::catalog::{Group, Need, tests_alone};
use crate::kit::exec_calls::{Job, Stream};
use crate::kit::outcome::{Outcome, call, ensure, optional, refused, skip, wrong};
use crate::kit::subject::Subject;
use dtl_sys::*;
use std::thread;
use std::time::Duration;

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "device.info",
        needs: &[Need::Device],
        rule: "info describes a device in a zeroed struct; 0 or an empty text = unknown.",
        usually: "A text without its NUL, a field in the wrong unit, or a struct written beyond \
            its size.",
        tests: tests_alone![
            "device.info.name_is_text": "the name is not empty, ends with NUL and is \
             UTF-8" => info_name;
            "device.info.pci_is_an_address": "the PCI address is empty or like \
             0000:65:00.0" => info_pci;
            "device.info.kind_is_a_device_kind": "the kind is 0 or a member of the device \
             enumeration" => info_kind;
            "device.info.block_limits_agree": "a block's limits allow at least one thread, and not \
             more than their product" => info_limits;
            "device.info.numa_node_is_plausible": "the NUMA node is -1 or a small \
             number" => info_numa;
            "device.info.same_each_time": "two calls tell the same" => info_stable;
            "device.info.keeps_the_callers_size": "struct_size is what the caller set" => info_size;
            "device.info.cut_struct_refused": "a size that no version has is refused, and nothing \
             is written" => info_cut;
            "device.info.beyond_count_refused": "a device that does not exist is \
             DTL_ERROR_OUT_OF_BOUNDS" => info_beyond;
        ],
    },
    Group {
        slot: "device.memory_info, memory.memory_info",
        needs: &[Need::DeviceMemory],
        rule: "Free and total bytes of a device; 0 = unknown. Of a backend with memory and without \
            devices: of all of its \
               memory, as device 0.",
        usually: "Free and total are swapped, in other units than bytes, or left unwritten.",
        tests: tests_alone![
            "device.memory_info.free_within_total": "free bytes are not more than total \
             bytes" => memory_within;
            "device.memory_info.both_outputs_written": "no output keeps what it \
             held" => memory_written;
            "device.memory_info.total_same_each_time": "the total does not change" => memory_stable;
            "device.memory_info.total_agrees_with_info": "the total is that of dtl_device_info, if \
             both are known" => memory_agrees;
            "device.memory_info.beyond_count_refused": "a device that does not exist is \
             DTL_ERROR_OUT_OF_BOUNDS" => memory_beyond;
        ],
    },
    Group {
        slot: "device.synchronize",
        needs: &[Need::Device],
        rule: "synchronize waits for all work on a device.",
        usually: "It returns at once, waits for one stream only, or waits for work that was never \
            queued.",
        tests: tests_alone![
            "device.synchronize.idle_returns": "a device without work is done at once" => sync_idle;
            "device.synchronize.waits_for_a_stream": "work that was queued before has run when it \
             returns" => sync_stream;
            "device.synchronize.waits_for_all_streams": "so it is with three \
             streams" => sync_streams;
            "device.synchronize.every_device": "each device can be waited for" => sync_each;
            "device.synchronize.beyond_count_refused": "a device that does not exist is \
             DTL_ERROR_OUT_OF_BOUNDS" => sync_beyond;
        ],
    },
    Group {
        slot: "device.dlpack",
        needs: &[Need::Device],
        rule: "DLPack's device type and id (dlpack.h, DLDeviceType).",
        usually: "The library's own device kind is given in the place of DLPack's number.",
        tests: tests_alone![
            "device.dlpack.type_is_one_of_dlpack": "the type is one that dlpack.h \
             knows" => dlpack_type;
            "device.dlpack.cpu_is_a_cpu": "a device of kind CPU has DLPack's type 1 or \
             3" => dlpack_cpu;
            "device.dlpack.ids_are_distinct": "two devices of one type have different \
             ids" => dlpack_ids;
        ],
    },
];

/// A check of every device's description.
fn each_info(s: &Subject, check: impl Fn(i32, &dtl_sys::dtl_device_info_t) -> Outcome) -> Outcome {
    (0..s.devices).try_for_each(|device| check(device, &s.backend.device_info(device)?))
}

fn info_name(s: &Subject) -> Outcome {
    each_info(s, |device, info| match field(&info.name) {
        Some(name) if !name.trim().is_empty() => Ok(()),
        Some(_) => wrong!("device {device} has an empty name"),
        None => wrong!("the name of device {device} has no NUL or is not UTF-8"),
    })
}

fn info_pci(s: &Subject) -> Outcome {
    each_info(s, |device, info| {
        let Some(pci) = field(&info.pci) else { wrong!("device {device}: no NUL, or not UTF-8") };
        let form =
            pci.chars().map(|c| if c.is_ascii_hexdigit() { 'x' } else { c }).collect::<String>();
        let good = ["", "xxxx:xx:xx.x", "xxxxxxxx:xx:xx.x", "xx:xx.x"].contains(&form.as_str());
        ensure!(good, "device {device}: \"{pci}\" is no PCI address (0000:65:00.0)");
        Ok(())
    })
}

fn info_kind(s: &Subject) -> Outcome {
    each_info(s, |device, info| {
        let kind = info.kind;
        let good = kind == 0 || kind >> 48 == DTL_DEVICE_CPU >> 48;
        ensure!(good, "device {device}: {kind:#x} is no member of the device enumeration");
        Ok(())
    })
}

fn info_limits(s: &Subject) -> Outcome {
    each_info(s, |device, info| {
        let known = info.max_block.iter().all(|size| *size > 0) && info.max_block_threads > 0;
        let product =
            info.max_block.iter().fold(1u64, |all, size| all.saturating_mul(u64::from(*size)));
        let (threads, block) = (info.max_block_threads, info.max_block);
        ensure!(
            !known || u64::from(threads) <= product,
            "device {device}: {threads} threads do not fit in {block:?}"
        );
        let some = info.max_block.iter().any(|size| *size > 0);
        ensure!(
            !some || info.max_block[0] > 0,
            "device {device}: a block of {block:?} has no thread"
        );
        Ok(())
    })
}

fn info_numa(s: &Subject) -> Outcome {
    each_info(s, |device, info| {
        let node = info.numa_node;
        ensure!((-1..1024).contains(&node), "device {device} is on NUMA node {node}");
        Ok(())
    })
}

fn info_stable(s: &Subject) -> Outcome {
    each_info(s, |device, info| {
        let again = s.backend.device_info(device)?;
        let same = info.name == again.name
            && info.pci == again.pci
            && (info.kind, info.total_bytes, info.compute_units, info.numa_node)
                == (again.kind, again.total_bytes, again.compute_units, again.numa_node)
            && (info.max_block, info.max_grid) == (again.max_block, again.max_grid);
        ensure!(same, "device {device} is described differently the second time");
        Ok(())
    })
}

fn info_size(s: &Subject) -> Outcome {
    each_info(s, |device, info| {
        let (is, should) = (info.struct_size, size_of_val(info) as u32);
        ensure!(is == should, "device {device}: struct_size is {is}, the caller set {should}");
        Ok(())
    })
}

fn info_cut(s: &Subject) -> Outcome {
    let mut info = no_device_info();
    info.struct_size = 16;
    info.name = [0x55; 128];
    info.total_bytes = 0x5555;
    let called = call!(dtl_device_info(s.backend.handle, 0, &raw mut info));
    refused(called, DTL_ERROR_INVALID_ARGUMENT, "struct_size 16")?;
    let kept = info.name == [0x55; 128] && info.total_bytes == 0x5555;
    ensure!(kept, "a call that failed wrote its output");
    Ok(())
}

fn info_beyond(s: &Subject) -> Outcome {
    refused(s.backend.device_info(s.devices + 7), DTL_ERROR_OUT_OF_BOUNDS, "info(count + 7)")?;
    refused(s.backend.device_info(-1), DTL_ERROR_OUT_OF_BOUNDS, "info(-1)")
}

/// How many devices have memory of their own; without a device table all memory is that of one.
fn memories(s: &Subject) -> i32 {
    if s.has("device") { s.devices } else { 1 }
}

/// A check of every device's memory, for backends that tell it.
fn each_memory(s: &Subject, check: impl Fn(i32, (u64, u64)) -> Outcome) -> Outcome {
    for device in 0..memories(s) {
        match optional(s.backend.device_memory(device))? {
            Some(memory) => check(device, memory)?,
            None => skip!("neither table has memory_info"),
        }
    }
    Ok(())
}

fn memory_within(s: &Subject) -> Outcome {
    each_memory(s, |device, (free, total)| {
        ensure!(total == 0 || free <= total, "device {device}: {free} bytes are free of {total}");
        Ok(())
    })
}

fn memory_written(s: &Subject) -> Outcome {
    each_memory(s, |device, (free, total)| {
        ensure!(
            free != u64::MAX && total != u64::MAX,
            "device {device}: free {free:#x}, total {total:#x}"
        );
        Ok(())
    })
}

fn memory_stable(s: &Subject) -> Outcome {
    each_memory(s, |device, (_, total)| {
        let again = s.backend.device_memory(device)?.1;
        ensure!(again == total, "device {device} had {total} bytes in all and has {again}");
        Ok(())
    })
}

fn memory_beyond(s: &Subject) -> Outcome {
    let (beyond, count) = (s.backend.device_memory(memories(s)), memories(s));
    refused(beyond, DTL_ERROR_OUT_OF_BOUNDS, &format!("memory of device {count} of {count}"))?;
    refused(s.backend.device_memory(-1), DTL_ERROR_OUT_OF_BOUNDS, "memory of device -1")
}

fn memory_agrees(s: &Subject) -> Outcome {
    if !s.has("device") {
        skip!("it has no device table, so no description");
    }
    each_memory(s, |device, (_, total)| {
        let told = s.backend.device_info(device)?.total_bytes;
        ensure!(
            told == 0 || total == 0 || told == total,
            "device {device}: {total} bytes, its description says {told}"
        );
        Ok(())
    })
}

fn sync_idle(s: &Subject) -> Outcome {
    Ok(s.backend.device_synchronize(0)?)
}

/// Streams with slow work, then a wait for the device.
fn sync_after(backend: Backend, streams: usize) -> Outcome {
    let slow = || {
        thread::sleep(Duration::from_millis(20));
        0
    };
    let started: Vec<Stream> =
        (0..streams).map(|_| Stream::new(backend, 0)).collect::<Result<_, _>>()?;
    let jobs: Vec<&'static Job> = started.iter().map(|_| Job::new(slow)).collect();
    for (stream, job) in started.iter().zip(&jobs) {
        stream.callback(job)?;
    }
    backend.device_synchronize(0)?;
    let left = jobs.iter().filter(|job| job.runs() == 0).count();
    ensure!(
        left == 0,
        "the device is said to be done; the work of {left} of {streams} stream(s) is not"
    );
    Ok(())
}

fn sync_stream(s: &Subject) -> Outcome {
    sync_after(s.backend, 1)
}

fn sync_streams(s: &Subject) -> Outcome {
    sync_after(s.backend, 3)
}

fn sync_each(s: &Subject) -> Outcome {
    (0..s.devices).try_for_each(|device| s.backend.device_synchronize(device)).map_err(Into::into)
}

fn sync_beyond(s: &Subject) -> Outcome {
    refused(s.backend.device_synchronize(s.devices), DTL_ERROR_OUT_OF_BOUNDS, "synchronize(count)")
}

/// Every device's number.
fn numbers(s: &Subject) -> Outcome<Vec<(i32, i32)>> {
    let all = (0..s.devices)
        .map(|device| optional(s.backend.dlpack(device)))
        .collect::<Result<Vec<_>, _>>()?;
    match all.into_iter().collect::<Option<Vec<_>>>() {
        Some(numbers) => Ok(numbers),
        None => skip!("it has no DLPack numbers"),
    }
}

fn dlpack_type(s: &Subject) -> Outcome {
    for (kind, id) in numbers(s)? {
        ensure!((1..=32).contains(&kind) && id >= 0, "DLPack type {kind}, id {id}");
    }
    Ok(())
}

fn dlpack_cpu(s: &Subject) -> Outcome {
    for (device, (kind, _)) in (0..).zip(numbers(s)?) {
        let is_cpu = s.backend.device_info(device)?.kind == DTL_DEVICE_CPU;
        ensure!(
            !is_cpu || [1, 3].contains(&kind),
            "device {device} is a CPU, its DLPack type is {kind}"
        );
    }
    Ok(())
}

fn dlpack_ids(s: &Subject) -> Outcome {
    let mut all = numbers(s)?;
    all.sort_unstable();
    let twice = all.windows(2).find(|pair| pair[0] == pair[1]);
    ensure!(twice.is_none(), "two devices are both {twice:?}");
    Ok(())
}
