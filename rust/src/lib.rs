//! The Rust parts of hocket in one static library; `hocket_rs.h` is the contract. Every entry runs
//! inside `guard`, so a panic or an error leaves the library only as a status code plus
//! `hk_last_error`; every string that goes out is an `HkBuf`.
// The requirements on pointers are in hocket_rs.h, once for all functions.
#![allow(clippy::missing_safety_doc)]

use std::cell::{Cell, RefCell};
use std::ffi::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

mod budget;
mod charges;
mod cutting;
mod grammar;
mod grammar_bounds;
mod held_bytes;
mod marks;
mod nested;
mod program;
mod python;
mod stop_regex;
mod template;
mod tokenizer;
mod tokenizer_file;
mod typescript;
pub use grammar::*;
pub use stop_regex::*;
pub use template::*;
pub use tokenizer::*;

pub type Res<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
const OK: i32 = 0;
const ERROR: i32 = -1;
const PANIC: i32 = -2;

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}
static HOOK: Once = Once::new();

/// Runs `f`; turns an error or a panic into a code and keeps its message for `hk_last_error`.
pub(crate) fn guard(f: impl FnOnce() -> Res<()>) -> i32 {
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !GUARDED.get() {
                usual(info);
            }
        }));
    });
    GUARDED.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(f));
    GUARDED.set(false);
    let (code, text) = match outcome {
        Ok(Ok(())) => return OK,
        Ok(Err(e)) => (ERROR, e.to_string()),
        Err(panic) => (PANIC, panic_text(panic)),
    };
    LAST.with(|last| *last.borrow_mut() = text);
    code
}

fn panic_text(panic: Box<dyn std::any::Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(other) => other.downcast_ref::<&str>().unwrap_or(&"unknown panic").to_string(),
    }
}

/// Frees memory that `Box::into_raw` gave out; null is allowed.
pub(crate) unsafe fn release<T>(p: *mut T) {
    if !p.is_null() {
        guard(|| {
            drop(Box::from_raw(p));
            Ok(())
        });
    }
}

/// Bytes that this library owns; `hk_buf_free` releases them.
#[repr(C)]
pub struct HkBuf {
    ptr: *mut u8,
    len: usize,
    cap: usize,
}

impl From<Vec<u8>> for HkBuf {
    fn from(v: Vec<u8>) -> Self {
        let mut v = std::mem::ManuallyDrop::new(v);
        HkBuf { ptr: v.as_mut_ptr(), len: v.len(), cap: v.capacity() }
    }
}
impl From<String> for HkBuf {
    fn from(s: String) -> Self {
        s.into_bytes().into()
    }
}
impl From<&[u32]> for HkBuf {
    fn from(v: &[u32]) -> Self {
        v.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<u8>>().into()
    }
}

pub(crate) unsafe fn bytes<'a>(p: *const c_char, n: usize) -> &'a [u8] {
    if n == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(p as *const u8, n)
    }
}
pub(crate) unsafe fn utf8<'a>(p: *const c_char, n: usize) -> Res<&'a str> {
    std::str::from_utf8(bytes(p, n))
        .map_err(|e| format!("not valid UTF-8 at byte {} of {n}", e.valid_up_to()).into())
}

#[no_mangle]
pub unsafe extern "C" fn hk_buf_free(b: *mut HkBuf) {
    if !b.is_null() && (*b).cap != 0 {
        drop(Vec::from_raw_parts((*b).ptr, (*b).len, (*b).cap));
        *b = HkBuf { ptr: std::ptr::null_mut(), len: 0, cap: 0 };
    }
}

#[no_mangle]
pub unsafe extern "C" fn hk_last_error(out: *mut c_char, cap: usize) -> usize {
    LAST.with(|last| {
        let s = last.borrow();
        if cap > 0 {
            let n = s.len().min(cap - 1);
            std::ptr::copy_nonoverlapping(s.as_ptr(), out as *mut u8, n);
            *out.add(n) = 0;
        }
        s.len()
    })
}

#[no_mangle]
pub extern "C" fn hk_test_panic(index: usize) -> i32 {
    guard(|| {
        let v = [1, 2, 3];
        std::hint::black_box(v[index]);
        Ok(())
    })
}

/// The compiler checks here the header's promises about threads.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    fn moved<T: Send>() {}
    shared::<HkTokenizer>();
    shared::<HkTemplate>();
    shared::<HkGrammar>();
    shared::<HkStopRegex>();
    moved::<HkDetok>();
    moved::<HkMatcher>();
    moved::<HkStopSearch>();
};
