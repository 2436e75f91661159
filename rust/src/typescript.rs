//! Declares the tools of a request as TypeScript, for templates that print `tools_ts_str`.
//!
//! Kimi K2.5 was trained on tools in this form, which the Python code beside its tokenizer makes. A
//! list of tools that this code gives up on goes to the template without the text, and the template
//! prints JSON instead.
use crate::budget::make;
use crate::nested::from_json;
use crate::python;
use minijinja::Error;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

pub const VARIABLE: &str = "tools_ts_str";
const INDENT: &str = "  ";

enum Stop {
    /// A schema has no form in TypeScript.
    Formless,
    Failed(Error),
}
impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        Stop::Failed(e)
    }
}
type Text = Result<String, Stop>;

/// Sorts the keys of `tools` at all levels, and adds their declarations to `context`.
pub fn declare_tools(context: &mut Value) -> Result<(), Error> {
    let Some(tools) = context.get_mut("tools").filter(|tools| is_true(tools)) else {
        return Ok(());
    };
    tools.sort_all_objects();
    match tools.as_array().map_or(Err(Stop::Formless), |tools| declarations(tools)) {
        Ok(text) => context[VARIABLE] = text.into(),
        Err(Stop::Formless) => {}
        Err(Stop::Failed(e)) => return Err(e),
    }
    Ok(())
}

fn declarations(tools: &[Value]) -> Text {
    let mut all = Vec::new();
    for tool in tools {
        let tool = object(tool)?;
        match tool.get("function") {
            Some(f) if is_type(tool, "function") && is_true(f) => all.push(function(object(f)?)?),
            _ => {}
        }
    }
    if all.is_empty() {
        return Ok(String::new());
    }
    charged(format!("# Tools\n\n## functions\nnamespace functions {{\n{}\n}}\n", all.join("\n")))
}

fn function(function: &Map<String, Value>) -> Text {
    let none = Map::new();
    let parameters = match function.get("parameters").filter(|p| is_true(p)) {
        Some(parameters) => object(parameters)?,
        None => &none,
    };
    let mut schemas = Schemas::default();
    let fields = schemas.fields(parameters, INDENT)?;
    let mut lines = Vec::new();
    let argument = if schemas.names_root {
        let fields: Vec<_> = fields.properties.into_iter().map(|f| f.text).collect();
        lines.push(format!("interface parameters {}", braces(fields, "")?));
        "parameters".into()
    } else {
        fields.joined("")?
    };
    for (name, definition) in schemas.definitions.clone() {
        let body = schemas.form(definition, "")?;
        let about = comment(object(definition)?.get("description"), "")?;
        lines.push(charged(format!("{about}interface {name} {body}"))?);
    }
    let about = comment(function.get("description"), "")?;
    let name = function.get("name").map_or(Ok("function"), string)?;
    lines.push(format!("{about}type {name} = (_: {argument}) => any;"));
    charged(lines.join("\n"))
}

struct Field {
    text: String,
    optional: bool,
}
struct Fields {
    properties: Vec<Field>, // in the order of their names
    others: Option<String>,
}
impl Fields {
    /// Puts required properties first.
    fn joined(mut self, indent: &str) -> Text {
        self.properties.sort_by_key(|field| field.optional);
        braces(self.properties.into_iter().map(|f| f.text).chain(self.others).collect(), indent)
    }
}

#[derive(Default)]
struct Schemas<'a> {
    definitions: Vec<(&'a str, &'a Value)>, // each name once
    indexes: HashMap<&'a str, usize>,       // in `definitions`
    names_root: bool,
}
impl<'a> Schemas<'a> {
    fn define(&mut self, definitions: &'a Value) -> Result<(), Stop> {
        if !is_true(definitions) {
            return Ok(());
        }
        for (name, schema) in object(definitions)? {
            let index = *self.indexes.entry(name).or_insert(self.definitions.len());
            match self.definitions.get_mut(index) {
                Some(known) => known.1 = schema,
                None => self.definitions.push((name, schema)),
            }
        }
        Ok(())
    }

    fn fields(&mut self, schema: &'a Map<String, Value>, indent: &str) -> Result<Fields, Stop> {
        if let Some(definitions) = schema.get("$defs") {
            self.define(definitions)?;
        }
        let others = match schema.get("additionalProperties") {
            None | Some(Value::Null) => None,
            Some(Value::Bool(any)) => Some(if *any { "any" } else { "never" }.to_string()),
            Some(other) => Some(self.form(object(other).map(|_| other)?, indent)?),
        };
        let others = others.map(|form| format!("{indent}[k: string]: {form}"));
        let mut properties = Vec::new();
        if let Some(all) = schema.get("properties") {
            let required = schema.get("required").map_or(Ok(&[][..]), list)?;
            let required: HashSet<_> = required.iter().filter_map(Value::as_str).collect();
            for (name, property) in object(all)? {
                let optional = !required.contains(name.as_str());
                properties
                    .push(Field { text: self.field(name, property, optional, indent)?, optional });
            }
        }
        Ok(Fields { properties, others })
    }

    fn field(&mut self, name: &str, schema: &'a Value, optional: bool, indent: &str) -> Text {
        let form = self.form(schema, indent)?;
        let about = documentation(schema, indent)?;
        let default = match schema.get("default") {
            None | Some(Value::Null) => String::new(),
            Some(v) => format!("{indent}// Default: {}\n", default_text(v)?),
        };
        let mark = if optional { "?" } else { "" };
        charged(format!("{about}{default}{indent}{name}{mark}: {form}"))
    }

    /// Returns the type that `schema` describes, whose lines after the first begin with `indent`.
    fn form(&mut self, schema: &'a Value, indent: &str) -> Text {
        if let Value::Bool(any) = schema {
            return Ok(if *any { "any" } else { "null" }.into());
        }
        let schema = object(schema)?;
        if let Some(reference) = schema.get("$ref") {
            return self.reference(string(reference)?);
        }
        if let Some(forms) = schema.get("anyOf") {
            let forms: Result<Vec<_>, _> =
                list(forms)?.iter().map(|f| self.form(f, indent)).collect();
            return charged(forms?.join(" | "));
        }
        if let Some(values) = schema.get("enum") {
            return enumeration(list(values)?, schema.get("type"));
        }
        match schema.get("type") {
            Some(Value::Array(names)) => union(names),
            Some(name) => match string(name)? {
                "object" => self.fields(schema, &format!("{indent}{INDENT}"))?.joined(indent),
                "array" => self.array(schema, indent),
                "integer" => Ok("number".into()),
                other => Ok(other.into()),
            },
            None if schema.is_empty() => Ok("any".into()),
            None => Err(Stop::Formless),
        }
    }

    fn array(&mut self, schema: &'a Map<String, Value>, indent: &str) -> Text {
        let Some(items) = schema.get("items").filter(|items| is_true(items)) else {
            return Ok("Array<any>".into());
        };
        let inner = format!("{indent}{INDENT}");
        let about = documentation(items, &inner)?;
        charged(match about.is_empty() {
            true => format!("Array<{}>", self.form(items, indent)?),
            false => format!("Array<\n{about}{inner}{}\n{indent}>", self.form(items, &inner)?),
        })
    }

    fn reference(&mut self, name: &str) -> Text {
        if name == "#" {
            self.names_root = true;
            return Ok("parameters".into());
        }
        let path = name.strip_prefix("#/$defs/").ok_or(Stop::Formless)?;
        let name = path.rsplit('/').next().unwrap_or(path);
        let index = *self.indexes.get(name).ok_or(Stop::Formless)?;
        object(self.definitions[index].1)?;
        charged(name.into())
    }
}

fn union(names: &[Value]) -> Text {
    let form = |name| {
        Ok(match string(name)? {
            "integer" => "number",
            "object" => "{}",
            "array" => "Array<any>",
            same @ ("string" | "number" | "boolean" | "null") => same,
            _ => return Err(Stop::Formless),
        })
    };
    Ok(names.iter().map(form).collect::<Result<Vec<_>, _>>()?.join(" | "))
}

fn enumeration(values: &[Value], kind: Option<&Value>) -> Text {
    let kind = match kind {
        Some(Value::Array(kinds)) => match kinds.as_slice() {
            [one] => Some(one),
            [null, one] | [one, null] if null == "null" => Some(one),
            _ => return Err(Stop::Formless),
        },
        other => other,
    };
    let fits = |v: &Value| match kind.and_then(Value::as_str) {
        Some("string") => v.is_string(),
        Some("number") => v.is_number() || v.is_boolean(),
        Some("integer") => v.is_i64() || v.is_u64() || v.is_boolean(),
        Some("boolean") => v.is_boolean(),
        _ => true,
    };
    let form = |v: &Value| match v {
        v if !v.is_null() && !fits(v) => Err(Stop::Formless),
        Value::String(s) => Ok(format!("\"{s}\"")),
        v => plain(v),
    };
    charged(values.iter().map(form).collect::<Result<Vec<_>, _>>()?.join(" | "))
}

/// Returns a schema's description and bounds as comments, each line with its end.
fn documentation(schema: &Value, indent: &str) -> Text {
    let keys: &[&str] = match schema.get("type").and_then(Value::as_str) {
        _ if ["$ref", "anyOf", "enum"].iter().any(|k| schema.get(k).is_some()) => &[],
        Some("string") => &["maxLength", "minLength", "pattern"],
        Some("number" | "integer") => &["maximum", "minimum"],
        Some("array") => &["maxItems", "minItems"],
        _ => &[],
    };
    let mut bounds = Vec::new();
    for key in keys {
        if let Some(bound) = schema.get(key) {
            bounds.push(format!("{key}: {}", plain(bound)?));
        }
    }
    let mut text = comment(schema.get("description"), indent)?;
    if !bounds.is_empty() {
        text += &format!("{indent}// {}\n", bounds.join(", "));
    }
    charged(text)
}

fn comment(text: Option<&Value>, indent: &str) -> Text {
    let Some(text) = text.filter(|text| is_true(text)) else { return Ok(String::new()) };
    let mut out = String::new();
    for line in string(text)?.split('\n') {
        make((indent.len() + line.len()) as u64 + 4)?;
        if !line.is_empty() {
            out.extend([indent, "// ", line]);
        }
        out.push('\n');
    }
    Ok(out)
}

fn braces(fields: Vec<String>, indent: &str) -> Text {
    if fields.is_empty() {
        return Ok("{}".into());
    }
    charged(format!("{{\n{}\n{indent}}}", fields.join(",\n")))
}

/// Writes a text as it is, and a number, a truth value or null as Python's str().
fn plain(v: &Value) -> Text {
    match v {
        Value::String(s) => charged(s.clone()),
        Value::Null => Ok("None".into()),
        Value::Bool(b) => Ok(if *b { "True" } else { "False" }.into()),
        Value::Number(n) if n.is_f64() => Ok(python::float(n.as_f64().unwrap_or(f64::NAN))),
        Value::Number(n) => Ok(n.to_string()),
        _ => Err(Stop::Formless),
    }
}

fn default_text(v: &Value) -> Text {
    match v {
        Value::Number(_) | Value::Bool(_) => plain(v),
        _ => Ok(python::dumps(from_json(v.clone())?)?),
    }
}

/// Takes the bytes of a text from the budget, because each level copies those inside it.
fn charged(text: String) -> Text {
    make(text.len() as u64)?;
    Ok(text)
}

fn is_true(v: &Value) -> bool {
    match v {
        Value::Null => false,
        Value::Bool(b) => *b,
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::String(s) => !s.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}
fn is_type(tool: &Map<String, Value>, name: &str) -> bool {
    tool.get("type").is_some_and(|t| t == name)
}
fn object(v: &Value) -> Result<&Map<String, Value>, Stop> {
    v.as_object().ok_or(Stop::Formless)
}
fn list(v: &Value) -> Result<&[Value], Stop> {
    v.as_array().map(Vec::as_slice).ok_or(Stop::Formless)
}
fn string(v: &Value) -> Result<&str, Stop> {
    v.as_str().ok_or(Stop::Formless)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with_schema(schema: Value) -> Value {
        json!({"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]})
    }

    #[test]
    fn a_text_that_grows_past_its_budget_is_an_error() {
        let mut schema = json!({"type": "string", "description": "a\n".repeat(1 << 20)});
        for _ in 0..45 {
            schema = json!({"type": "object", "properties": {"p": schema}});
        }
        crate::budget::begin(1 << 10);
        assert!(declare_tools(&mut with_schema(schema)).is_err());
    }

    #[test]
    fn names_are_found_without_walks() {
        let (mut definitions, mut properties) = (Map::new(), Map::new());
        for i in 0..100_000 {
            definitions.insert(format!("d{i}"), json!({}));
            properties.insert(format!("p{i}"), json!({"$ref": format!("#/$defs/d{i}")}));
        }
        let required: Vec<_> = properties.keys().cloned().collect();
        let (mut context, count) = (json!({}), required.len());
        context["type"] = "object".into();
        context["$defs"] = definitions.into();
        context["properties"] = properties.into();
        context["required"] = required.into();
        let mut context = with_schema(context);
        crate::budget::begin(8 << 20);
        declare_tools(&mut context).unwrap();
        let text = context[VARIABLE].as_str().unwrap();
        assert_eq!(text.matches("\n  p").count(), count);
    }
}
