//! Everything that a chat template can call. Each call is charged to the budgets of the rendering
//! (budget.rs) before it does its work: the operators, which program.rs turns into filters, and the
//! engine's filters, tests, functions and methods.
use crate::budget::{make, read, VALUE};
use crate::nested::{is_changing, list, list_of, listed, map, mapped, weight, width};
use crate::python::text;
use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{filters, functions, tests, Environment, Error, ErrorKind, State};
use std::cmp::Ordering;

type Answer = Result<Value, Error>;

/// Most digits of a width in a format, and most lists that `batch` and `slice` make.
const FORMAT_DIGITS_MAX: usize = 3;
const LISTS_MAX: u64 = 100_000;

fn wrong(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, text.into())
}

/// Charges for a text or a list that a call has made.
fn made(v: Value) -> Answer {
    if let Some(text) = v.as_str() {
        make(text.len() as u64)?;
    }
    listed(v)
}

fn sum(args: &[Value], cost: fn(&Value) -> u64) -> u64 {
    args.iter().map(cost).fold(0, u64::saturating_add)
}
/// Returns an argument as a text; the empty text if it is not a text.
fn text_at(args: &[Value], i: usize) -> &str {
    args.get(i).and_then(|v| v.as_str()).unwrap_or_default()
}
/// Returns the largest number among the arguments, positional or named.
fn largest(args: &[Value]) -> u64 {
    let named = args.last().filter(|v| v.is_kwargs()).and_then(|v| v.as_object()?.try_iter_pairs());
    let named = named.into_iter().flatten().map(|(_, v)| v);
    args.iter().cloned().chain(named).filter_map(|v| u64::try_from(v).ok()).max().unwrap_or(0)
}

// ---- Costs: each function charges for one kind of call before it is made ----

/// Charges for calls that read their texts, and one item of each list.
fn texts(args: &[Value]) -> Result<(), Error> {
    read(sum(args, |v| VALUE + v.as_str().map_or(0, str::len) as u64))
}
/// Charges for calls that read texts and lists, but not the content of the items.
fn shallow(args: &[Value]) -> Result<(), Error> {
    read(sum(args, width))
}
/// Charges for calls that read their arguments with all of their content.
fn deep(args: &[Value]) -> Result<(), Error> {
    read(sum(args, weight))
}
/// Charges for calls that read each value several times: sorting compares it with some others, and
/// printing puts blanks before it.
fn repeated(args: &[Value]) -> Result<(), Error> {
    read(sum(args, weight).saturating_mul(32))
}
/// Charges for a comparison of two values, which ends with the smaller one.
fn compared(args: &[Value]) -> Result<(), Error> {
    read(args.iter().map(weight).min().unwrap_or(0))
}
/// Charges for a search for a value in a container.
fn found(args: &[Value]) -> Result<(), Error> {
    let [value, container, ..] = args else { return Ok(()) };
    let items = match container.kind() {
        ValueKind::Seq | ValueKind::Iterable => container.len().unwrap_or(0) as u64,
        _ => 1,
    };
    let each = weight(value).saturating_mul(items).min(weight(container).saturating_mul(2));
    read(width(container).saturating_add(each))
}
/// Charges for trimming, which compares each character with each of a set.
fn trimmed(args: &[Value]) -> Result<(), Error> {
    let set = text_at(args, 1).len().max(1) as u64;
    read(args.first().map_or(0, width).saturating_mul(set))
}
fn replaced(args: &[Value]) -> Result<(), Error> {
    shallow(args)?;
    let places = text_at(args, 0).matches(text_at(args, 1)).count() as u64;
    make(places.saturating_mul(text_at(args, 2).len() as u64))
}
fn split(args: &[Value]) -> Result<(), Error> {
    shallow(args)?;
    let text = text_at(args, 0);
    let places = match args.get(1).and_then(|v| v.as_str()).filter(|s| !s.is_empty()) {
        Some(at) => text.matches(at).count(),
        None => text.split_whitespace().count(),
    };
    make(places as u64 * VALUE)
}
fn lines(args: &[Value]) -> Result<(), Error> {
    shallow(args)?;
    make((1 + text_at(args, 0).matches('\n').count() as u64).saturating_mul(VALUE + largest(args)))
}
/// Charges for putting a text between items, which are those of a list or the characters of a text.
fn joined(args: &[Value]) -> Result<(), Error> {
    deep(args)?;
    let texts = args.iter().filter_map(|v| v.as_str()).map(str::len);
    let (items, between) = match args.iter().find(|v| is_list(v)) {
        Some(list) => (list.len().unwrap_or(0), texts.max()),
        None => (texts.clone().max().unwrap_or(0), texts.min()),
    };
    make((items as u64).saturating_mul(between.unwrap_or(0) as u64))
}
/// Charges for `batch` and `slice`, which divide a list into several.
fn dealt(args: &[Value]) -> Result<(), Error> {
    shallow(args)?;
    let lists = largest(args);
    if lists > LISTS_MAX {
        return Err(wrong(format!("batch and slice take up to {LISTS_MAX}, not {lists}")));
    }
    make(lists * VALUE)
}
/// Charges for `'%5d' | format(1)` and `'{:5}'.format(1)`: the width is in the text, or is an
/// argument if the text has `*`.
fn formatted(args: &[Value]) -> Result<(), Error> {
    let wide = |rest: &str| {
        let key = rest.strip_prefix('(').and_then(|r| r.split_once(')')).map_or(rest, |(_, r)| r);
        let end = key.find(|c: char| !"#0- +*.123456789".contains(c)).unwrap_or(key.len());
        key[..end].contains('*') || has_long_number(&key[..end])
    };
    formatted_at(args, '%', wide)
}
fn formatted_in_braces(args: &[Value]) -> Result<(), Error> {
    let wide = |rest: &str| {
        let field = rest.split('}').next().unwrap_or_default();
        field.split_once(':').is_some_and(|(_, spec)| has_long_number(spec))
    };
    formatted_at(args, '{', wide)
}
fn formatted_at(args: &[Value], mark: char, wide: impl Fn(&str) -> bool) -> Result<(), Error> {
    deep(args)?;
    let format = text_at(args, 0);
    if format.split(mark).skip(1).any(wide) {
        return Err(wrong("a format asks for '*' or for more than three digits of width"));
    }
    let places = format.matches(mark).count() as u64;
    make(sum(args, weight).saturating_mul(1 + places))
}
fn has_long_number(spec: &str) -> bool {
    spec.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > FORMAT_DIGITS_MAX)
}
fn numbers_only(args: &[Value]) -> Result<(), Error> {
    shallow(args)?;
    let all = args.first().and_then(|v| v.try_iter().ok()).into_iter().flatten();
    match all.into_iter().find(|v| v.kind() != ValueKind::Number) {
        Some(other) => Err(wrong(format!("sum takes numbers, not a {}", other.kind()))),
        None => Ok(()),
    }
}

type Cost = fn(&[Value]) -> Result<(), Error>;

// ---- operators ----

fn arithmetic(
    a: &Value,
    b: &Value,
    sign: &str,
    integers: fn(i128, i128) -> Option<i128>,
    floats: fn(f64, f64) -> f64,
) -> Answer {
    let unsupported = || {
        let (a, b) = (a.kind(), b.kind());
        wrong(format!("tried to use {sign} operator on unsupported types {a} and {b}"))
    };
    if let (Ok(x), Ok(y)) = (i128::try_from(a.clone()), i128::try_from(b.clone())) {
        if !crate::python::is_float(a) && !crate::python::is_float(b) {
            let n = integers(x, y)
                .ok_or_else(|| wrong(format!("unable to calculate {a} {sign} {b}")))?;
            return Ok(i64::try_from(n).map_or(Value::from(n), Value::from));
        }
    }
    let float = |v: &Value| match v.kind() {
        ValueKind::Bool => Some(f64::from(u8::from(v.is_true()))),
        ValueKind::Number => f64::try_from(v.clone()).ok(),
        _ => None,
    };
    match (float(a), float(b)) {
        (Some(x), Some(y)) => Ok(Value::from(floats(x, y))),
        _ => Err(unsupported()),
    }
}

fn is_list(v: &Value) -> bool {
    matches!(v.kind(), ValueKind::Seq | ValueKind::Iterable)
}

fn add(a: &Value, b: &Value) -> Answer {
    if is_list(a) && is_list(b) {
        return list(a.try_iter()?.chain(b.try_iter()?));
    }
    if let (Some(x), Some(y)) = (a.as_str(), b.as_str()) {
        make((x.len() + y.len()) as u64)?;
        return Ok(Value::from([x, y].concat()));
    }
    arithmetic(a, b, "+", i128::checked_add, |x, y| x + y)
}

fn repeat(a: &Value, b: &Value) -> Answer {
    let (what, times) =
        if a.as_str().is_some() || (is_list(a) && b.as_str().is_none()) { (a, b) } else { (b, a) };
    if what.as_str().is_none() && !is_list(what) {
        return arithmetic(a, b, "*", i128::checked_mul, |x, y| x * y);
    }
    let times = times.as_usize().ok_or_else(|| {
        wrong("strings, sequences and iterables can only be multiplied with integers")
    })?;
    let once =
        what.as_str().map_or_else(|| VALUE * what.len().unwrap_or(0) as u64, |t| t.len() as u64);
    make(once.saturating_mul(times as u64))?;
    match what.as_str() {
        Some(text) => Ok(Value::from(text.repeat(times))),
        None => {
            let items: Vec<Value> = what.try_iter()?.collect();
            list((0..times).flat_map(|_| items.iter().cloned()))
        }
    }
}

fn concatenate(a: &Value, b: &Value) -> Answer {
    let (a, b) = (text(a.clone())?, text(b.clone())?);
    make(weight(&a).saturating_add(weight(&b)))?;
    Ok(Value::from(format!("{a}{b}")))
}

fn contains(state: &State, container: &Value, value: &Value) -> Answer {
    found(&[value.clone(), container.clone()])?;
    if container.as_str().is_none() && container.as_object().is_none() && !container.is_undefined()
    {
        return Err(wrong("cannot perform a containment check on this value"));
    }
    tests::is_in(state, value, container).map(Value::from)
}

/// Returns the items of `v` at [start:stop:step] as Python counts them.
fn stepped(v: Value, start: Option<i64>, stop: Option<i64>, step: Option<i64>) -> Answer {
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(wrong("a slice cannot have a step of 0"));
    }
    let places = |len: usize| {
        let len = len as i64;
        let (first, last) = if step > 0 { (0, len) } else { (-1, len - 1) };
        let place = |at: i64| (if at < 0 { at.saturating_add(len) } else { at }).clamp(first, last);
        let (begin, end) = if step > 0 { (first, last) } else { (last, first) };
        let (begin, end) = (start.map_or(begin, place), stop.map_or(end, place));
        let goes_on = move |at: &i64| if step > 0 { *at < end } else { *at > end };
        std::iter::successors(Some(begin), move |at| at.checked_add(step))
            .take_while(goes_on)
            .map(|at| at as usize)
    };
    if let Some(text) = v.as_str() {
        let chars: Vec<char> = text.chars().collect();
        return Ok(places(chars.len()).map(|i| chars[i]).collect::<String>().into());
    }
    if !matches!(
        v.kind(),
        ValueKind::Undefined | ValueKind::None | ValueKind::Seq | ValueKind::Iterable
    ) {
        return Err(wrong(format!("value of type {} cannot be sliced", v.kind())));
    }
    let items: Vec<Value> = v.try_iter()?.collect();
    Ok(places(items.len()).map(|i| items[i].clone()).collect::<Vec<_>>().into())
}

/// program.rs calls the functions below by these names; no template can spell them.
pub const READ: &str = "[:]";
pub const READ_ALL: &str = "#";
pub const ITEM: &str = "[i]";
pub const COPY: &str = "*[]";
pub const STEPPED: &str = "[::]";
pub const LIST: &str = "[]";
pub const MAP: &str = "{}";
pub const STORE: &str = "=";
pub const STORE_IN_NAMESPACE: &str = ".=";

fn add_operators(e: &mut Environment<'static>) {
    e.add_filter("+", |a: &Value, b: &Value| add(a, b));
    e.add_filter("*", |a: &Value, b: &Value| repeat(a, b));
    e.add_filter("~", |a: &Value, b: &Value| concatenate(a, b));
    e.add_filter("in?", |state: &State, v: &Value, all: &Value| contains(state, all, v));
    #[allow(clippy::type_complexity)]
    let comparisons: [(&str, fn(&Value, &Value) -> bool); 6] = [
        ("==", |a, b| a == b),
        ("!=", |a, b| a != b),
        ("<", |a, b| a.cmp(b) == Ordering::Less),
        ("<=", |a, b| a.cmp(b) != Ordering::Greater),
        (">", |a, b| a.cmp(b) == Ordering::Greater),
        (">=", |a, b| a.cmp(b) != Ordering::Less),
    ];
    for (name, holds) in comparisons {
        e.add_filter(name, move |a: &Value, b: &Value| -> Answer {
            read(weight(a).min(weight(b)))?;
            Ok(Value::from(holds(a, b)))
        });
    }
    e.add_filter(READ, |v: Value| read(width(&v)).map(|()| v));
    e.add_filter(READ_ALL, |v: Value| read(weight(&v)).map(|()| v));
    e.add_filter(ITEM, |v: Value| texts(std::slice::from_ref(&v)).map(|()| v));
    e.add_filter(COPY, |v: Value| make(VALUE * v.len().unwrap_or(0) as u64).map(|()| v));
    e.add_filter(STEPPED, stepped);
    e.add_filter(LIST, made);
    e.add_filter(MAP, mapped);
    e.add_filter(STORE, listed);
    e.add_filter(STORE_IN_NAMESPACE, |v: Value| still(listed(v)?));
}

/// Refuses a value that may change, because a namespace that holds one could lead back to itself.
fn still(v: Value) -> Answer {
    match is_changing(&v) {
        true => Err(wrong("a namespace cannot hold a namespace, a macro or a loop")),
        false => Ok(v),
    }
}

// ---- filters, tests, functions, methods ----

fn filter(e: &mut Environment<'static>, name: &'static str, cost: Cost, f: Value) {
    e.add_filter(name, move |state: &State, args: Rest<Value>| {
        cost(&args)?;
        made(f.call(state, &args)?)
    });
}

/// Adds a filter that works on a text: another value becomes one as Python writes it.
fn text_filter(e: &mut Environment<'static>, name: &'static str, cost: Cost, f: Value) {
    e.add_filter(name, move |state: &State, v: Value, rest: Rest<Value>| {
        let args: Vec<Value> = [text(v)?].into_iter().chain(rest.0).collect();
        cost(&args)?;
        made(f.call(state, &args)?)
    });
}

/// Returns a list with its items as texts.
fn list_of_texts(v: Value) -> Answer {
    match is_list(&v) {
        true => list_of(v.try_iter()?, text),
        false => Ok(v),
    }
}

/// A list in a format is a text; a number is not, because the format says how to write it.
fn text_of_list(v: Value) -> Answer {
    match v.kind() {
        ValueKind::Seq | ValueKind::Map if !v.is_kwargs() => text(v),
        _ => Ok(v),
    }
}

/// Nothing is in a value that does not exist, so its length is 0 and it has no first item.
fn or_empty(v: Value) -> Value {
    match v.is_undefined() {
        true => Value::from(""),
        false => v,
    }
}

fn add_filters(e: &mut Environment<'static>) {
    macro_rules! filters {
        ($add:ident { $($cost:ident: $($name:ident)+;)+ }) => {
            $($($add(e, stringify!($name), $cost, Value::from_function(filters::$name));)+)+
        };
    }
    filters! { text_filter {
        texts: upper lower title capitalize;
        deep: string escape safe;
        trimmed: trim;
        replaced: replace;
    } }
    filters! { filter {
        texts: attr default abs int float bool round;
        shallow: items reverse list zip select reject selectattr rejectattr map;
        repeated: sort unique dictsort min max pprint;
        split: split;
        lines: lines indent;
        dealt: batch slice;
        numbers_only: sum;
    } }
    filter(e, "d", texts, Value::from_function(filters::default));
    text_filter(e, "e", deep, Value::from_function(filters::escape));
    for (name, f) in [
        ("length", Value::from_function(filters::length)),
        ("count", Value::from_function(filters::length)),
        ("first", Value::from_function(filters::first)),
        ("last", Value::from_function(filters::last)),
    ] {
        e.add_filter(name, move |state: &State, v: Value| -> Answer {
            let v = or_empty(v);
            texts(std::slice::from_ref(&v))?;
            made(f.call(state, &[v])?)
        });
    }
    let join = Value::from_function(filters::join);
    e.add_filter("join", move |state: &State, v: Value, rest: Rest<Value>| {
        let args: Vec<Value> = [list_of_texts(v)?].into_iter().chain(rest.0).collect();
        joined(&args)?;
        made(join.call(state, &args)?)
    });
    let format = Value::from_function(filters::format);
    e.add_filter("format", move |state: &State, args: Rest<Value>| {
        let args = args.0.into_iter().map(text_of_list).collect::<Result<Vec<Value>, Error>>()?;
        formatted(&args)?;
        made(format.call(state, &args)?)
    });
    let chain = Value::from_function(filters::chain);
    e.add_filter("chain", move |state: &State, args: Rest<Value>| {
        shallow(&args)?;
        mapped(chain.call(state, &args)?)
    });
    // The result's items are lists with names for their two parts.
    let groupby = Value::from_function(filters::groupby);
    e.add_filter("groupby", move |state: &State, args: Rest<Value>| {
        repeated(&args)?;
        list_of(groupby.call(state, &args)?.try_iter()?, Ok)
    });
}

fn add_tests(e: &mut Environment<'static>) {
    let mut test = |name: &'static str, cost: Cost, f: Value| {
        e.add_test(name, move |state: &State, args: Rest<Value>| -> Result<bool, Error> {
            cost(&args)?;
            Ok(f.call(state, &args)?.is_true())
        });
    };
    macro_rules! tests {
        ($($cost:ident: $($f:ident = $($name:literal)+),+;)+) => {
            $($($(test($name, $cost, Value::from_function(tests::$f));)+)+)+
        };
    }
    tests! {
        compared: is_eq = "eq" "equalto" "==", is_ne = "ne" "!=", is_lt = "lt" "lessthan" "<",
                  is_le = "le" "<=", is_gt = "gt" "greaterthan" ">", is_ge = "ge" ">=",
                  is_sameas = "sameas", is_startingwith = "startingwith",
                  is_endingwith = "endingwith";
        found: is_in = "in";
        texts: is_lower = "lower", is_upper = "upper";
    }
    // Python's answers, which are not the engine's: none has no items, a text and a mapping are
    // sequences, and true and false are numbers.
    e.add_test("iterable", |v: &Value| !v.is_none() && v.try_iter().is_ok());
    e.add_test("sequence", |v: &Value| {
        v.is_undefined() || matches!(v.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String)
    });
    e.add_test("number", |v: &Value| matches!(v.kind(), ValueKind::Number | ValueKind::Bool));
}

fn add_functions(e: &mut Environment<'static>) {
    e.remove_global("debug");
    let range = Value::from_function(functions::range);
    e.add_function("range", move |state: &State, args: Rest<Value>| {
        made(range.call(state, &args)?)
    });
    let dict = Value::from_function(functions::dict);
    e.add_function("dict", move |state: &State, args: Rest<Value>| {
        shallow(&args)?;
        mapped(dict.call(state, &args)?)
    });
    let namespace = Value::from_function(functions::namespace);
    e.add_function("namespace", move |state: &State, args: Rest<Value>| -> Answer {
        shallow(&args)?;
        let pairs = args.iter().filter_map(|v| v.as_object()?.try_iter_pairs()).flatten();
        let values = map(pairs)?;
        namespace.call(state, &[still(values)?])
    });
}

fn call_method(state: &State, v: &Value, method: &str, args: &[Value]) -> Answer {
    let all: Vec<Value> = [v].into_iter().chain(args).cloned().collect();
    let cost: Cost = match method {
        "strip" | "lstrip" | "rstrip" => trimmed,
        "startswith" | "endswith" => compared,
        "replace" => replaced,
        "split" => split,
        "splitlines" => lines,
        "join" => joined,
        "format" => formatted_in_braces,
        "count" if is_list(v) => deep,
        _ => texts,
    };
    cost(&all)?;
    made(minijinja_contrib::pycompat::unknown_method_callback(state, v, method, args)?)
}

pub fn add_all(e: &mut Environment<'static>) {
    add_operators(e);
    add_filters(e);
    add_tests(e);
    add_functions(e);
    e.set_unknown_method_callback(call_method);
}
