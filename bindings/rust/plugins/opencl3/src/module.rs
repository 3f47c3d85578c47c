//! Programs, kernels and launches.

use crate::{Named, OpenCl, exec::Stream, invalid, lock};
use dtl_binding::{Error, Result, driver::*, sys, sys::dtl_launch_t as Shape};
use opencl3::{device::Device, kernel as cl, program::Program};
use std::{ptr, sync::Mutex};

/// A compiled program, and its device.
pub(super) struct Module {
    program: Program,
    device: Device,
}

/// How an argument of a kernel is passed.
#[derive(Clone, Copy, PartialEq)]
enum Pass {
    /// By value.
    Value,
    /// Shared virtual memory, by its address.
    Pointer,
    /// Memory of a block, whose size the launch has.
    Shared,
}

/// A kernel. A cl_kernel stores its arguments, so one thread at a time sets and launches it.
pub(super) struct Kernel {
    kernel: Mutex<cl::Kernel>,
    arguments: Vec<Pass>,
    /// Bytes of `__local` memory that a launch can have.
    room: u64,
}

impl Modules for OpenCl {
    type Module = Module;
    type Kernel = Kernel;

    fn compile(&self, device: i32, source: SourceText<'_>, log: &mut String) -> Result<Module> {
        let (context, device) = (&self.platform()?.context, self.device(device)?);
        let headers = Headers::write(&source)?;
        let (include, given) = (headers.path().display(), source.options().join(" "));
        let options = format!("-cl-kernel-arg-info -I{include} {given}");
        if !matches!(source.language(), 0 | sys::DTL_LANGUAGE_OPENCL) {
            return Err(Error::new(sys::DTL_ERROR_NOT_SUPPORTED, "use DTL_LANGUAGE_OPENCL, or 0"));
        }
        let text = String::from_utf8_lossy(source.bytes());
        let text = format!("#line 1 {:?}\n{text}", source.name());
        let mut program = Program::create_from_source(context, &text).named("a program")?;
        let built = program.build(&[device.id()], &options);
        log.push_str(&program.get_build_log(device.id()).unwrap_or_default());
        built.named("clBuildProgram")?;
        Ok(Module { program, device })
    }

    fn kernel(&self, of: &Module, name: &str, signature: Option<&[Parameter]>) -> Result<Kernel> {
        let kernel = cl::Kernel::create(&of.program, name).named("clCreateKernel")?;
        let pass = |index| match kernel.get_arg_address_qualifier(index)? {
            cl::CL_KERNEL_ARG_ADDRESS_LOCAL => Ok(Pass::Shared),
            cl::CL_KERNEL_ARG_ADDRESS_PRIVATE => Ok(Pass::Value),
            _ => Ok(Pass::Pointer),
        };
        let count = kernel.num_args().named("clGetKernelInfo")?;
        let arguments = (0..count).map(pass).collect::<opencl3::Result<Vec<_>>>();
        let arguments = arguments.named("clGetKernelArgInfo")?;
        let agrees = |(index, (pass, parameter)): (u32, (&Pass, &Parameter))| match parameter {
            Parameter::Pointer => *pass != Pass::Value,
            // OpenCL knows the size.
            Parameter::Value(size) => {
                *pass == Pass::Value && set(&kernel, index, *pass, &vec![0; *size], 0).is_ok()
            }
        };
        let given = signature.unwrap_or_default();
        let mut pairs = (0..).zip(arguments.iter().zip(given));
        if signature.is_some() && (given.len() != arguments.len() || !pairs.all(agrees)) {
            return Err(invalid(format!("signature: kernel '{name}' has other parameters")));
        }
        let own = kernel.get_local_mem_size(of.device.id()).named("clGetKernelWorkGroupInfo")?;
        let most = of.device.local_mem_size().named("clGetDeviceInfo")?;
        let room = most.checked_sub(own).ok_or_else(|| {
            invalid(format!("kernel '{name}' has {own} bytes of __local memory, of {most}"))
        })?;
        Ok(Kernel { kernel: Mutex::new(kernel), arguments, room })
    }

    fn launch(&self, on: &Stream, kernel: &Kernel, shape: &Shape, arguments: Arguments) -> Result {
        if arguments.len() != kernel.arguments.len() {
            return Err(invalid(format!("arguments: the kernel has {}", kernel.arguments.len())));
        }
        let parts = kernel.arguments.iter().filter(|pass| **pass == Pass::Shared).count() as u64;
        let (shared, room) = (u64::from(shape.shared_bytes), kernel.room);
        if (shared > 0) != (parts > 0) || parts * shared > room {
            return Err(invalid(format!("shared_bytes: {parts} arguments can have {room} bytes")));
        }
        let one = lock(&kernel.kernel);
        for ((pass, bytes), index) in kernel.arguments.iter().zip(arguments.iter()).zip(0..) {
            set(&one, index, *pass, bytes, shape.shared_bytes as usize)?;
        }
        let block = shape.block.map(|threads| threads as usize);
        let mut grid = block;
        grid.iter_mut().zip(shape.grid).for_each(|(size, blocks)| *size *= blocks as usize);
        let (grid, block, id, none) = (grid.as_ptr(), block.as_ptr(), one.get(), ptr::null());
        on.add(|queue| {
            // SAFETY: all arguments are set, and the sizes are arrays of three.
            unsafe { queue.enqueue_nd_range_kernel(id, 3, none, grid, block, &[]) }
                .named("a launch")
        })
    }
}

/// Sets an argument of a kernel that the caller has locked. OpenCL checks the size of a value.
fn set(kernel: &cl::Kernel, index: u32, pass: Pass, bytes: &[u8], shared: usize) -> Result {
    let (size, value) = match (pass, <[u8; 8]>::try_from(bytes).map(usize::from_ne_bytes)) {
        (Pass::Shared, _) => (shared, ptr::null()), // 0 bytes are refused
        (Pass::Value, _) => (bytes.len(), bytes.as_ptr().cast()),
        (Pass::Pointer, Ok(0)) => (bytes.len(), ptr::null()),
        (Pass::Pointer, Ok(address)) => {
            let at = ptr::with_exposed_provenance(address);
            // SAFETY: an argument of the kernel. The program vouches for the address.
            return unsafe { kernel.set_arg_svm_pointer(index, at) }.named("a pointer");
        }
        _ => return Err(invalid(format!("argument {index} has {} bytes", bytes.len()))),
    };
    // SAFETY: an argument of the kernel, and a value of this size, or none.
    unsafe { cl::set_kernel_arg(kernel.get(), index, size, value) }.named("clSetKernelArg")
}
