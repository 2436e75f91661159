//! Lists and mappings of a chat template that know the depth and the weight of their content.
//!
//! Every list and mapping that a template can reach is one of these, so that the amount to compare,
//! print, copy or drop is known before the work. None is lazy, none is deeper than `DEPTH_MAX`, and
//! a namespace, the only value that can change, holds nothing that leads back to it.
use crate::budget::{make, VALUE};
use minijinja::value::{DynObject, Enumerator, Object, ObjectRepr, Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::fmt;
use std::sync::Arc;

/// Most levels of lists and mappings inside one another. Comparing, printing and dropping them
/// recurse.
pub const DEPTH_MAX: u32 = 200;

pub struct Nested {
    content: DynObject, // a list or mapping of the engine
    depth: u32,
    weight: u64,
    changing: bool, // holds a namespace, a macro or the like
}

impl Object for Nested {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        self.content.repr()
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.content.get_value(key)
    }
    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.content.get_value_by_str(key)
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.content.enumerate()
    }
}
impl fmt::Debug for Nested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.content, f)
    }
}

fn nested(v: &Value) -> Option<&Nested> {
    v.downcast_object_ref::<Nested>()
}

/// Returns true if `v` may change after it was stored: it is or holds a namespace, a macro or the
/// like.
pub fn is_changing(v: &Value) -> bool {
    match nested(v) {
        Some(n) => n.changing,
        None => v.as_object().is_some(),
    }
}

/// Returns the bytes that reading all of `v` costs.
pub fn weight(v: &Value) -> u64 {
    if let Some(text) = v.as_str() {
        return VALUE + text.len() as u64;
    }
    match nested(v) {
        Some(n) if !n.changing => n.weight,
        _ => match v.as_object().map(DynObject::repr) {
            Some(ObjectRepr::Map) => {
                let pairs = v.as_object().and_then(|o| o.try_iter_pairs());
                let each = |(k, v): (Value, Value)| weight(&k).saturating_add(weight(&v));
                pairs.into_iter().flatten().map(each).fold(VALUE, u64::saturating_add)
            }
            Some(ObjectRepr::Seq | ObjectRepr::Iterable) => {
                let items = v.try_iter().into_iter().flatten();
                items.map(|v| weight(&v)).fold(VALUE, u64::saturating_add)
            }
            _ => VALUE,
        },
    }
}

/// Returns the bytes of a text, or of the places of a list's items.
pub fn width(v: &Value) -> u64 {
    match v.as_str() {
        Some(text) => VALUE + text.len() as u64,
        None => VALUE + 2 * v.len().unwrap_or(0) as u64,
    }
}

/// Sums up the values that go into one: their depth, their weight, and if one of them may change.
struct Holder {
    depth: u32,
    weight: u64,
    changing: bool,
}
impl Holder {
    fn new() -> Self {
        Holder { depth: 0, weight: VALUE, changing: false }
    }
    fn hold(&mut self, v: &Value) {
        self.depth =
            self.depth.max(nested(v).map_or(u32::from(v.as_object().is_some()), |n| n.depth));
        self.weight = self.weight.saturating_add(nested(v).map_or_else(|| weight(v), |n| n.weight));
        self.changing |= is_changing(v);
    }
    fn nested(self, content: Value) -> Result<Value, Error> {
        if self.depth >= DEPTH_MAX {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("a value nests deeper than {DEPTH_MAX} levels"),
            ));
        }
        let content = content.as_object().expect("lists and mappings are objects").clone();
        let Holder { depth, weight, changing } = self;
        Ok(Value::from_object(Nested { content, depth: depth + 1, weight, changing }))
    }
}

/// Makes a list of `items` and charges for each of them.
pub fn list(items: impl IntoIterator<Item = Value>) -> Result<Value, Error> {
    list_of(items, listed)
}
pub fn list_of(
    items: impl IntoIterator<Item = Value>,
    each: fn(Value) -> Result<Value, Error>,
) -> Result<Value, Error> {
    let (mut holder, mut all) = (Holder::new(), Vec::new());
    for item in items {
        make(VALUE)?;
        let item = each(item)?;
        holder.hold(&item);
        all.push(item);
    }
    holder.nested(Value::from(all))
}

pub fn map(pairs: impl IntoIterator<Item = (Value, Value)>) -> Result<Value, Error> {
    let (mut holder, mut all) = (Holder::new(), Vec::new());
    for (key, value) in pairs {
        make(2 * VALUE)?;
        let value = listed(value)?;
        holder.hold(&key);
        holder.hold(&value);
        all.push((key, value));
    }
    holder.nested(all.into_iter().collect())
}

/// Turns a list of the engine, even a lazy one, into `Nested`; returns any other value unchanged.
pub fn listed(v: Value) -> Result<Value, Error> {
    match v.kind() {
        ValueKind::Seq | ValueKind::Iterable if nested(&v).is_none() => list(v.try_iter()?),
        _ => Ok(v),
    }
}

/// Turns a mapping that the engine has just made into `Nested`.
pub fn mapped(v: Value) -> Result<Value, Error> {
    match v.as_object().filter(|o| o.repr() == ObjectRepr::Map) {
        Some(object) if nested(&v).is_none() => map(object.try_iter_pairs().into_iter().flatten()),
        _ => listed(v),
    }
}

/// Converts JSON of a request or of a model's files; serde_json has limited its depth.
pub fn from_json(json: serde_json::Value) -> Result<Value, Error> {
    use serde_json::Value as Json;
    Ok(match json {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(b),
        Json::Number(n) => match (n.as_u64(), n.as_i64()) {
            (Some(n), _) => Value::from(n),
            (_, Some(n)) => Value::from(n),
            _ => Value::from(n.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(s) => Value::from(s),
        Json::Array(items) => {
            let items: Result<Vec<Value>, Error> = items.into_iter().map(from_json).collect();
            list(items?)?
        }
        Json::Object(fields) => {
            let pairs = fields.into_iter().map(|(k, v)| Ok((Value::from(k), from_json(v)?)));
            map(pairs.collect::<Result<Vec<_>, Error>>()?)?
        }
    })
}
