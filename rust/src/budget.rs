//! Limits the cost of the rendering that runs on this thread.
//!
//! The engine's fuel limits the number of steps, but one step may copy, compare or repeat values of
//! any size. So there are two budgets in bytes: reading is charged to limit the time, making to
//! limit the memory. A value counts as `VALUE` bytes plus its content.
use minijinja::{Error, ErrorKind};
use std::cell::Cell;

/// Long conversations read and make some 10 bytes for each byte of theirs.
const READ_BASE: u64 = 1 << 30;
const MADE_BASE: u64 = 128 << 20;
const PER_BYTE: u64 = 64;
pub const VALUE: u64 = 32;

struct Budget {
    left: Cell<u64>,
    limit: Cell<u64>,
}
impl Budget {
    const fn new() -> Self {
        Budget { left: Cell::new(0), limit: Cell::new(0) }
    }
    fn begin(&self, limit: u64) {
        self.left.set(limit);
        self.limit.set(limit);
    }
    fn take(&self, bytes: u64, verb: &str) -> Result<(), Error> {
        if let Some(left) = self.left.get().checked_sub(bytes) {
            self.left.set(left);
            return Ok(());
        }
        let text = format!("it {verb} more than {} bytes; does a value grow?", self.limit.get());
        Err(Error::new(ErrorKind::InvalidOperation, text))
    }
}

thread_local! {
    static READ: Budget = const { Budget::new() };
    static MADE: Budget = const { Budget::new() };
}

/// Begins a rendering; `context_bytes` is the size of its context as JSON.
pub fn begin(context_bytes: usize) {
    let more = PER_BYTE.saturating_mul(context_bytes as u64);
    READ.with(|budget| budget.begin(READ_BASE.saturating_add(more)));
    MADE.with(|budget| budget.begin(MADE_BASE.saturating_add(more)));
}

/// Takes `bytes` from the budget of reading. Callers do so before they read.
pub fn read(bytes: u64) -> Result<(), Error> {
    READ.with(|budget| budget.take(bytes, "reads"))
}
/// Takes `bytes` from the budget of making. Callers do so before they allocate.
pub fn make(bytes: u64) -> Result<(), Error> {
    MADE.with(|budget| budget.take(bytes, "makes"))
}
