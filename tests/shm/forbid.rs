//! System calls that fail as if the kernel had no memory or denied permission: a seccomp filter
//! returns the error instead. For tests, in processes of their own.

/// Makes the calling thread's later system calls of this number fail with this error.
pub(crate) fn forbid(call: libc::c_long, errno: i32) {
    filter(call, libc::SECCOMP_RET_ERRNO | errno as u32);
}

/// Makes the process end by SIGSYS at the calling thread's next system call of this number.
pub(crate) fn end_at(call: libc::c_long) {
    filter(call, libc::SECCOMP_RET_KILL_PROCESS);
}

fn filter(call: libc::c_long, action: u32) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    let mut steps = [
        step(LOAD, 0, 0), // the call's number is the first word
        libc::sock_filter { code: IF_EQUAL, jt: 0, jf: 1, k: call as u32 },
        step(RETURN, 0, action),
        step(RETURN, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: takes integers only.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the kernel copies the program, which lives until the call returns.
    let set =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    if set != 0 {
        println!("skipped: no filter for system calls here: {}", std::io::Error::last_os_error());
        std::process::exit(0);
    }
}

/// Applies DTL_TEST_FORBID ("call... errno"), if it is set.
pub(crate) fn forbid_as_told() {
    let Ok(told) = std::env::var("DTL_TEST_FORBID") else { return };
    let mut words: Vec<&str> = told.split(' ').collect();
    let errno = match words.pop() {
        Some("ENOSYS") => libc::ENOSYS,
        Some("EPERM") => libc::EPERM,
        Some("ENOSPC") => libc::ENOSPC,
        other => panic!("no such error: {other:?}"),
    };
    for word in words {
        forbid(number(word), errno);
    }
}

fn number(call: &str) -> libc::c_long {
    match call {
        "clone3" => libc::SYS_clone3,
        "close_range" => libc::SYS_close_range,
        "copy_file_range" => libc::SYS_copy_file_range,
        "faccessat2" => libc::SYS_faccessat2,
        "fallocate" => libc::SYS_fallocate,
        "ftruncate" => libc::SYS_ftruncate,
        "getrandom" => libc::SYS_getrandom,
        "membarrier" => libc::SYS_membarrier,
        "memfd_create" => libc::SYS_memfd_create,
        "openat2" => libc::SYS_openat2,
        "pidfd_open" => libc::SYS_pidfd_open,
        "pidfd_send_signal" => libc::SYS_pidfd_send_signal,
        "process_vm_readv" => libc::SYS_process_vm_readv,
        "process_vm_writev" => libc::SYS_process_vm_writev,
        "statx" => libc::SYS_statx,
        other => panic!("no such call: {other}"),
    }
}
