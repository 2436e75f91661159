//! Cuts a text into pieces, which a tokenizer's model then turns into tokens. The normalizers, the
//! added tokens and the pre-tokenizers of its tokenizer.json do the cutting.
//!
//! The patterns come from a model's publisher, the text from a client, and Oniguruma backtracks. So
//! one encoding has a limit of processor time and of how much longer its text may become.
use crate::Res;
use onig::{MatchParam, Regex, Region, SearchOptions};
use serde_json::Value;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tokenizers::tokenizer::pattern::{Invert, Pattern};
use tokenizers::tokenizer::{
    NormalizedString, Normalizer, Offsets, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior,
};
use tokenizers::{Model, NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

/// Processor time of one encoding. Ordinary tokenizers take 0.2 to 5 microseconds a byte.
const TIME_BASE: Duration = Duration::from_millis(500);
const TIME_PER_BYTE: Duration = Duration::from_micros(16);
/// All steps together may make a text at most this many times longer, plus this many bytes. NFKD
/// alone makes some texts 11 times longer.
const GROWTH_MAX: usize = 16;
const GROWTH_BASE: usize = 4096;
/// The library searches by itself in texts of at most this size, until it has backtracked this
/// often.
const SEARCH_BYTES_MAX: usize = 64 << 10;
const SEARCH_RETRIES_MAX: u32 = 4 << 20;
/// Entries of the stack of one match, 40 bytes each.
const MATCH_STACK_MAX: u32 = 4 << 20;
const STEPS_MAX: usize = 64;
/// Length of the runs on which each pattern is tried when a file is read.
const PROBE_LENGTH: usize = 1024;
const SHOWN_MAX: usize = 100;

/// Returns the processor time that this thread has used.
pub fn processor_time() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// A meter holds the time and the growth that one encoding may use. Only one thread uses it; its
/// counters are atomic because the library demands that a normalizer is `Sync`.
struct Meter {
    bytes: usize,
    allowed: Duration,
    until: Duration, // on this thread's processor time
    began: Instant,
    checked_ms: AtomicU64,
    grown: AtomicUsize, // bytes of the sections that the normalizers have finished
    failed: OnceLock<String>,
}

impl Meter {
    fn new(bytes: usize) -> Self {
        let per_byte = TIME_PER_BYTE * u32::try_from(bytes).unwrap_or(u32::MAX);
        Self::with_time(bytes, TIME_BASE + per_byte)
    }
    fn with_time(bytes: usize, allowed: Duration) -> Self {
        Meter {
            bytes,
            allowed,
            until: processor_time() + allowed,
            began: Instant::now(),
            checked_ms: AtomicU64::new(0),
            grown: AtomicUsize::new(0),
            failed: OnceLock::new(),
        }
    }

    fn check_time(&self) -> Res<()> {
        // Reading the clock is cheap, reading the processor time is not.
        let now_ms = self.began.elapsed().as_millis() as u64;
        if self.checked_ms.swap(now_ms, Relaxed) == now_ms || processor_time() < self.until {
            return Ok(());
        }
        Err(format!(
            "cutting {} bytes into tokens takes more than {:.1} s: the patterns of this model's \
             tokenizer.json are slow on this text; send a shorter one",
            self.bytes,
            self.allowed.as_secs_f64()
        )
        .into())
    }

    fn check_bytes(&self, grown: usize) -> Res<()> {
        let limit = GROWTH_MAX * self.bytes + GROWTH_BASE;
        if grown <= limit {
            return Ok(());
        }
        Err(format!(
            "this model's tokenizer.json makes {} bytes of text longer than {limit} bytes",
            self.bytes
        )
        .into())
    }
}

struct Search(Regex);

impl Search {
    fn new(pattern: &str) -> Res<Self> {
        Ok(Search(Regex::new(linear(pattern))?))
    }

    /// Finds the first match that begins at `from` or later. In a long text, or if the library
    /// backtracks too often, it tries one place after the other and checks the time in between.
    fn next(&self, text: &str, from: usize, meter: &Meter) -> Res<Option<(usize, usize)>> {
        let none = SearchOptions::SEARCH_OPTION_NONE;
        let mut region = Region::new();
        let mut place = from;
        let mut alone = true;
        while place <= text.len() {
            meter.check_time()?;
            let mut limits = MatchParam::default();
            limits.set_match_stack_limit(MATCH_STACK_MAX);
            if alone && text.len() - place <= SEARCH_BYTES_MAX {
                limit_retries_of_search(&limits, SEARCH_RETRIES_MAX);
                let end = text.len();
                match self.0.search_with_param(text, place, end, none, Some(&mut region), limits) {
                    Ok(found) => return Ok(found.and_then(|_| region.pos(0))),
                    Err(e) if e.code() == onig_sys::ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER => {
                        alone = false
                    }
                    Err(e) => return Err(e.into()),
                }
            } else if let Some(len) = self.0.match_with_param(text, place, none, None, limits)? {
                return Ok(Some((place, place + len)));
            } else {
                place += text[place..].chars().next().map_or(1, char::len_utf8);
            }
        }
        Ok(None)
    }

    /// Returns true if, in a run of blanks, letters, digits or signs, the pattern backtracks more
    /// often than a search in linear time would.
    fn is_slow(&self) -> bool {
        [" ", "\n", " \n", "a", "1", "!", "中"].iter().any(|run| {
            ["", "1", "a", "!"].iter().any(|end| {
                let text = run.repeat(PROBE_LENGTH) + end;
                let limits = MatchParam::default();
                limit_retries_of_search(&limits, (32 * text.len()) as u32);
                let (len, none) = (text.len(), SearchOptions::SEARCH_OPTION_NONE);
                let found = self.0.search_with_param(text.as_str(), 0, len, none, None, limits);
                found.is_err()
            })
        })
    }

    /// Returns all matches as `onig::Regex::find_iter` does: none is empty at the end of another.
    fn all(&self, text: &str, meter: &Meter) -> Res<Vec<(usize, usize)>> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        let mut from = 0;
        while let Some((start, end)) = self.next(text, from, meter)? {
            from = end;
            if start == end && found.last().is_some_and(|last| last.1 == end) {
                from += text[end..].chars().next().map_or(1, char::len_utf8);
                continue;
            }
            found.push((start, end));
        }
        Ok(found)
    }
}

fn limit_retries_of_search(limits: &MatchParam, retries: u32) {
    let (limits, retries) = (limits.as_raw(), retries.into());
    unsafe { onig_sys::onig_set_retry_limit_in_search_of_match_param(limits, retries) };
}

/// Some DeepSeek models cut with `\s+$`, which tries every blank of a run as the first one. A match
/// never begins inside a run, because one from the run's first blank would be longer. So only that
/// is tried.
fn linear(pattern: &str) -> &str {
    match pattern {
        r"\s+$" => r"(?<!\s)\s+$",
        other => other,
    }
}

struct Metered<'a>(&'a Search, &'a Meter);
impl Pattern for Metered<'_> {
    fn find_matches(&self, text: &str) -> tokenizers::Result<Vec<(Offsets, bool)>> {
        if text.is_empty() {
            return Ok(vec![((0, 0), false)]);
        }
        let (mut pieces, mut done) = (Vec::new(), 0);
        for (start, end) in self.0.all(text, self.1)? {
            if done != start {
                pieces.push(((done, start), false));
            }
            pieces.push(((start, end), true));
            done = end;
        }
        if done != text.len() {
            pieces.push(((done, text.len()), false));
        }
        Ok(pieces)
    }
}

enum Change {
    Replace(Search, String),
    Other(NormalizerWrapper),
}
enum Cut {
    Split { search: Search, behavior: SplitDelimiterBehavior, invert: bool },
    Other(PreTokenizerWrapper),
}

/// The steps of one tokenizer.json, in their order.
pub struct Cutter {
    changes: Vec<Change>,
    cuts: Vec<Cut>,
    /// The first pattern that takes quadratic time on some texts; the limit of time refuses those
    /// texts.
    pub slow: Option<String>,
}

struct Changer<'a>(&'a [Change], &'a Meter);
impl Changer<'_> {
    fn change(&self, text: &mut NormalizedString) -> Res<()> {
        for step in self.0 {
            match step {
                Change::Replace(search, with) => {
                    let matches = search.all(text.get(), self.1)?;
                    if matches.iter().any(|(start, end)| start == end) {
                        return Err("a Replace of tokenizer.json matches the empty text".into());
                    }
                    self.1.check_bytes(text.get().len() + matches.len() * with.len())?;
                    text.replace(Metered(search, self.1), with)?;
                }
                Change::Other(step) => step.normalize(text)?,
            }
            self.1.check_time()?;
            self.1.check_bytes(self.1.grown.load(Relaxed) + text.get().len())?;
        }
        self.1.grown.fetch_add(text.get().len(), Relaxed);
        Ok(())
    }
}
impl Normalizer for Changer<'_> {
    /// Keeps an error in the meter, because the library drops errors of a normalizer.
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        if self.1.failed.get().is_none() {
            if let Err(error) = self.change(text) {
                let _ = self.1.failed.set(error.to_string());
            }
        }
        Ok(())
    }
}

impl Cutter {
    pub fn new(tokenizer: &Tokenizer) -> Res<Self> {
        let mut cutter = Cutter { changes: Vec::new(), cuts: Vec::new(), slow: None };
        if let Some(normalizer) = tokenizer.get_normalizer() {
            cutter.add_change(normalizer)?;
        }
        if let Some(pre_tokenizer) = tokenizer.get_pre_tokenizer() {
            cutter.add_cut(pre_tokenizer)?;
        }
        let steps = cutter.changes.len() + cutter.cuts.len();
        if steps > STEPS_MAX {
            return Err(format!(
                "it has {steps} normalizers and pre-tokenizers, the limit is {STEPS_MAX}"
            )
            .into());
        }
        Ok(cutter)
    }

    /// Compiles the pattern of a `Split` or `Replace`. A `String` is escaped and matches itself.
    fn search_of(&mut self, step: &Value) -> Res<Search> {
        match (step["pattern"]["Regex"].as_str(), step["pattern"]["String"].as_str()) {
            (Some(regex), _) => {
                let search = Search::new(regex)?;
                if self.slow.is_none() && search.is_slow() {
                    self.slow = Some(regex.chars().take(SHOWN_MAX).collect());
                }
                Ok(search)
            }
            (_, Some("")) => Err("a pattern of tokenizer.json is the empty text".into()),
            (_, Some(text)) => {
                let escape =
                    |c: char| c.is_ascii_punctuation().then_some('\\').into_iter().chain([c]);
                Search::new(&text.chars().flat_map(escape).collect::<String>())
            }
            _ => Err("a step of tokenizer.json has no pattern".into()),
        }
    }

    fn add_change(&mut self, step: &NormalizerWrapper) -> Res<()> {
        match step {
            NormalizerWrapper::Sequence(all) => {
                return all.as_ref().iter().try_for_each(|one| self.add_change(one))
            }
            NormalizerWrapper::Replace(replace) => {
                let search = self.search_of(&serde_json::to_value(replace)?)?;
                self.changes.push(Change::Replace(search, replace.content.clone()));
            }
            other => self.changes.push(Change::Other(other.clone())),
        }
        Ok(())
    }

    fn add_cut(&mut self, step: &PreTokenizerWrapper) -> Res<()> {
        match step {
            PreTokenizerWrapper::Sequence(all) => {
                return all.as_ref().iter().try_for_each(|one| self.add_cut(one))
            }
            PreTokenizerWrapper::Split(split) => {
                let search = self.search_of(&serde_json::to_value(split)?)?;
                let (behavior, invert) = (split.behavior, split.invert);
                self.cuts.push(Cut::Split { search, behavior, invert });
            }
            other => self.cuts.push(Cut::Other(other.clone())),
        }
        Ok(())
    }

    /// Cuts `text` into pieces and tokens. Added tokens are found first; then `mark` is removed.
    pub fn cut(&self, t: &Tokenizer, text: &str, mark: Option<char>) -> Res<PreTokenizedString> {
        let meter = Meter::new(text.len());
        let changer = Changer(&self.changes, &meter);
        let mut pieces = t.get_added_vocabulary().extract_and_normalize(Some(&changer), text);
        if let Some(error) = meter.failed.get() {
            return Err(error.as_str().into());
        }
        if let Some(mark) = mark {
            pieces.normalize(|piece| {
                piece.filter(|c| c != mark);
                Ok(())
            })?;
        }
        for step in &self.cuts {
            match step {
                Cut::Split { search, behavior, invert } => {
                    let pattern = || Metered(search, &meter);
                    pieces.split(|_, piece| match invert {
                        true => piece.split(Invert(pattern()), *behavior),
                        false => piece.split(pattern(), *behavior),
                    })?;
                }
                Cut::Other(step) => step.pre_tokenize(&mut pieces)?,
            }
            let grown = Cell::new(0);
            pieces.normalize(|piece| {
                grown.set(grown.get() + piece.get().len());
                Ok(())
            })?;
            meter.check_time()?;
            meter.check_bytes(grown.get())?;
        }
        pieces.tokenize(|piece| {
            meter.check_time()?;
            t.get_model().tokenize(piece.get())
        })?;
        Ok(pieces)
    }
}

#[cfg(test)]
mod tests;
