//! Attributes of communicators: pointers that the application attaches to a communicator under
//! keys. The callbacks of a key copy and delete its attributes.

use crate::abi::comm::communicator::{dtl_attribute_copy_fn_t, dtl_attribute_delete_fn_t};
use crate::abi::handle::dtl_comm_t;
use crate::error::{Error, Result, fail, failure};
use crate::last_error::Mark;
use crate::sys::compute::callback;
use crate::sys::memory::buf::Addr;
use crate::sys::sync::lock::Mutex;
use std::collections::BTreeMap;

/// Callbacks of an attribute key, and the argument of the callbacks.
#[derive(Clone, Copy)]
pub struct Key {
    /// Callback that copies an attribute when a communicator is duplicated. Without a callback, the
    /// attribute is not copied.
    pub copy: dtl_attribute_copy_fn_t,
    /// Callback that is called when an attribute is deleted; may be absent.
    pub delete: dtl_attribute_delete_fn_t,
    /// Argument passed to both callbacks.
    pub user: Addr,
}

/// Registered keys by number. Numbers are not reused.
static KEYS: Mutex<BTreeMap<i32, Key>> = Mutex::new(BTreeMap::new());
static NEXT: Mutex<i32> = Mutex::new(1);

/// Attributes of a communicator. Maps the number of each key to the callbacks that the key had when
/// the attribute was set, and to the value of the attribute.
#[derive(Default)]
pub struct Attributes(Mutex<BTreeMap<i32, (Key, Addr)>>);

/// Creates a key and returns its number.
pub fn create_key(key: Key) -> Result<i32> {
    let mut next = NEXT.lock();
    let number = *next;
    *next = number
        .checked_add(1)
        .ok_or_else(|| failure!(DTL_ERROR_LIMIT, "no attribute key is left"))?;
    KEYS.lock().insert(number, key);
    Ok(number)
}

/// Destroys the key with the given number. Existing attributes under this key remain until their
/// communicators are destroyed.
pub fn destroy_key(number: i32) -> Result<()> {
    KEYS.lock().remove(&number).map(drop).ok_or_else(|| unknown(number))
}

fn unknown(number: i32) -> Error {
    failure!(
        DTL_ERROR_INVALID_HANDLE,
        "attribute key {number} is none: it was destroyed or never made"
    )
}

fn find(number: i32) -> Result<Key> {
    KEYS.lock().get(&number).copied().ok_or_else(|| unknown(number))
}

impl Attributes {
    /// Sets the attribute under the key `number`. Calls the delete callback for the previous value
    /// under this key, if any.
    pub fn set(&self, handle: dtl_comm_t, number: i32, value: Addr) -> Result<()> {
        let key = find(number)?;
        let old = self.0.lock().insert(number, (key, value));
        if let Some((key, value)) = old {
            callback::delete_attribute(key.delete, (handle, number), (key.user, value));
        }
        Ok(())
    }

    /// Returns the value of an attribute, or `None` if the communicator has no attribute with this
    /// key.
    pub fn get(&self, number: i32) -> Result<Option<Addr>> {
        let value = self.0.lock().get(&number).map(|(_, value)| *value);
        if value.is_none() {
            find(number)?;
        }
        Ok(value)
    }

    /// Deletes the attribute under the key `number` and calls the delete callback of the key.
    pub fn delete(&self, handle: dtl_comm_t, number: i32) -> Result<()> {
        let old = self.0.lock().remove(&number);
        let Some((key, value)) = old else {
            find(number)?;
            return fail!(
                DTL_ERROR_NOT_FOUND,
                "the communicator has no attribute under key {number}"
            );
        };
        callback::delete_attribute(key.delete, (handle, number), (key.user, value));
        Ok(())
    }

    /// Copies the attributes to a duplicate of the communicator. The copy callback of each key
    /// decides whether the attribute under that key is copied. If a callback fails, deletes all
    /// copies.
    pub(crate) fn copy_to(&self, to: &Attributes, handle: dtl_comm_t) -> Result<()> {
        let all: Vec<_> = self.0.lock().iter().map(|(number, entry)| (*number, *entry)).collect();
        for (number, (key, value)) in all {
            let before = Mark::now();
            match callback::copy_attribute(key.copy, (handle, number), (key.user, value)) {
                Ok(Some(copy)) => drop(to.0.lock().insert(number, (key, copy))),
                Ok(None) => {}
                Err(status) => {
                    let what = format!(
                        "no duplicate was made: the copy function of attribute key {number} \
                         returned"
                    );
                    let error = before.explain(Error::of_status(&what, status));
                    to.delete_all(dtl_comm_t { id: 0 });
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Deletes all attributes of a communicator that is being destroyed.
    pub(crate) fn delete_all(&self, handle: dtl_comm_t) {
        let all = std::mem::take(&mut *self.0.lock());
        for (number, (key, value)) in all {
            callback::delete_attribute(key.delete, (handle, number), (key.user, value));
        }
    }
}

/// Discards all attribute keys without calling a callback. Called at finalize and in a forked
/// child, where the attributes point to the child's copy of the parent's memory.
pub(crate) fn forget_all() {
    KEYS.lock().clear();
}
