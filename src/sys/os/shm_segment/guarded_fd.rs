//! Descriptor that is closed on drop only if it still refers to the same file. If a program closes
//! a descriptor of the library by mistake, another file that the program opens may get the same
//! descriptor number, and that file must stay open.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;

/// File whose descriptor is closed on drop, unless the descriptor number refers to a different file
/// at that time.
pub(super) struct GuardedFd {
    file: ManuallyDrop<File>,
    identity: (u64, u64),
}

impl GuardedFd {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let identity = identity(&file)?;
        Ok(GuardedFd { file: ManuallyDrop::new(file), identity })
    }
}

/// Returns the device and inode numbers of a file.
fn identity(file: &File) -> io::Result<(u64, u64)> {
    let seen = file.metadata()?;
    Ok((seen.dev(), seen.ino()))
}

impl Deref for GuardedFd {
    type Target = File;
    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for GuardedFd {
    fn drop(&mut self) {
        if identity(&self.file).is_ok_and(|now| now == self.identity) {
            // SAFETY: dropped once, here, and not used again.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}
