//! Tests of launches of compiled kernels: copies of arguments and references that a queued launch
//! keeps, kernels that fail, and checks of signatures.

use super::module::{
    ADDS, GRIDS, Module, Sum, binary, compile, is_each, kernel_with, module, name, named, needed,
    of_grids, signature,
};
use crate::kit::prelude::*;
use std::ffi::CStr;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Alone "exec.module.":
        arguments_are_copied, destroyed_kernel_still_runs, destroyed_module_still_runs,
        failure_is_the_streams, wrong_signature_refused, launches_without_signature_are_checked;
];

/// Skips the test if the results of the kernel under test are not known.
fn known(s: &Subject) -> Outcome {
    needed(s)?;
    if signature() != ADDS {
        skip!("only what a kernel of signature \"{ADDS}\" computes is known");
    }
    Ok(())
}

fn arguments_are_copied(s: &Subject) -> Outcome {
    known(s)?;
    let (stream, first, hold) = (Stream::new(s.backend, 0)?, Sum::new(s)?, Hold::new());
    let second = Sum::new(s)?;
    hold.on(&stream)?;
    let (mut pointer, mut number) = (first.block.address().to_ne_bytes(), 5_i32.to_ne_bytes());
    stream.launch(&first.kernel, &first.shape, &[&pointer, &number])?;
    pointer = second.block.address().to_ne_bytes();
    number = 7_i32.to_ne_bytes();
    // The library may pass its own copy of the arguments, which is valid during the call only. This
    // launch then overwrites that copy.
    stream.launch(&second.kernel, &second.shape, &[&pointer, &number])?;
    number = 1_i32.to_ne_bytes();
    std::hint::black_box((&pointer, &number));
    hold.release();
    stream.synchronize()?;
    let (first, second) = (is_each(&first.block, 5)?, is_each(&second.block, 7)?);
    ensure!(first, "the first of two launches did not add its argument 5 to its array");
    check!(second, "the second of two launches did not add its argument 7 to its array")
}

/// Queues a launch behind other work, destroys its kernel and, if `all`, its module. Gets other
/// kernels, which may take the place of the destroyed one, and checks what the launch computes.
fn destroyed(s: &Subject, all: bool) -> Outcome {
    known(s)?;
    let others = match binary()? {
        Some((bytes, language)) => compile(s, &bytes, language)?,
        None => compile(s, GRIDS.to_bytes(), 0)?,
    };
    let module = module(s)?;
    let (stream, hold) = (Stream::new(s.backend, 0)?, Hold::new());
    let sum = Sum::of(s, named(&module)?)?;
    hold.on(&stream)?;
    sum.launch(&stream)?;
    drop(sum.kernel);
    let kept = if all {
        drop(module);
        None
    } else {
        Some(module)
    };
    let crowd: Vec<Kernel> =
        (0..32).map_while(|_| kernel_with(&others, c"place", Some(c"pI")).ok()).collect();
    hold.release();
    stream.synchronize()?;
    drop((crowd, kept));
    let what = if all { "kernel and its module were" } else { "kernel was" };
    check!(is_each(&sum.block, 5)?, "a queued launch did not compute after its {what} destroyed")
}

fn destroyed_kernel_still_runs(s: &Subject) -> Outcome {
    destroyed(s, false)
}

fn destroyed_module_still_runs(s: &Subject) -> Outcome {
    destroyed(s, true)
}

/// Only for kernels of a file: no macro of dtl_kernel.h makes a kernel fail on every device.
fn failure_is_the_streams(s: &Subject) -> Outcome {
    needed(s)?;
    if binary()?.is_none() {
        skip!(
            "no source with dtl_kernel.h fails on every device; the kernel \"fails\" (pi) of a \
             file of --binary is tested"
        );
    }
    let kernel = of_grids(s, c"fails", c"pi")?;
    let sum = Sum::of(s, kernel)?;
    for waits_for_event in [false, true] {
        let stream = Stream::new(s.backend, 0)?;
        // If the kernel has run before the slot returns, the slot can return the failure.
        if sum.launch(&stream).is_err() {
            continue;
        }
        let (ended, by) = if waits_for_event {
            (Event::on(s.backend, &stream).and_then(|event| event.sync()), "an event behind it")
        } else {
            (stream.synchronize(), "synchronize")
        };
        ensure!(ended.is_err(), "a launch of the kernel \"fails\" failed, and {by} did not");
    }
    Ok(())
}

/// Returns the kernel under test, without a signature. Skips the test if the backend has no
/// information about the arguments of a kernel and therefore refuses this.
fn without_signature(module: &Module) -> Outcome<Kernel> {
    match kernel_with(module, &name(), None) {
        Err(refused) if refused.status == DTL_ERROR_INVALID_ARGUMENT => {
            skip!("it requires a signature ({})", refused.text)
        }
        kernel => Ok(kernel?),
    }
}

fn wrong_signature_refused(s: &Subject) -> Outcome {
    known(s)?;
    let module = module(s)?;
    let _kernel = without_signature(&module)?;
    let wrong: [(&CStr, &str); 4] = [
        (c"p", "1 argument of 2"),
        (c"pii", "3 arguments instead of 2"),
        (c"pl", "64 bits instead of an int"),
        (c"hi", "16 bits instead of a pointer"),
    ];
    for (signature, what) in wrong {
        let result = kernel_with(&module, &name(), Some(signature));
        refused(result, DTL_ERROR_INVALID_ARGUMENT, &format!("signature {signature:?}, {what}"))?;
    }
    Ok(())
}

fn launches_without_signature_are_checked(s: &Subject) -> Outcome {
    known(s)?;
    let module = module(s)?;
    let sum = Sum::of(s, without_signature(&module)?)?;
    let stream = Stream::new(s.backend, 0)?;
    sum.refuses_arguments(&stream)?;
    sum.launch(&stream)?;
    sum.check(&stream)
}
