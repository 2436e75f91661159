//! Counts the bytes that a thread has allocated in this library and not freed, so that the size of
//! a grammar is the difference of the counts at two moments.
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
}

/// Returns this thread's count in bytes. It is negative if the thread freed more than it allocated,
/// since memory may be freed by another thread.
pub fn held_bytes() -> isize {
    HELD.get()
}

struct Counted;

#[global_allocator]
static COUNTED: Counted = Counted;

fn count(bytes: isize) {
    // A thread that ends may have destroyed HELD already.
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: every call is passed on to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        System.alloc(layout)
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        System.alloc_zeroed(layout)
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        System.dealloc(memory, layout)
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        System.realloc(memory, layout, size)
    }
}
