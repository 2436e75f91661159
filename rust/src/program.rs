//! Turns a chat template into a program of the engine in which everything is charged (budget.rs):
//! its operators become filters of charges.rs, its own text is printed like any value, and the values
//! it stores become plain (nested.rs). This uses the engine's internal machinery, so its version is
//! pinned.
use crate::charges;
use minijinja::machinery::ast::{
    self, BinOpKind, CallArg, CompareOpKind, Expr, Spanned, Stmt, UnaryOpKind,
};
use minijinja::machinery::{
    make_string_output, parse, tokenize, CodeGenerator, Instructions, Span, Token, Vm,
    WhitespaceConfig,
};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The largest templates of model families have 20 KB and 100 words in one statement.
const SOURCE_BYTES_MAX: usize = 256 << 10;
/// Each word or sign of a statement, and each `elif` of the template, may be a level of the tree.
const STATEMENT_TOKENS_MAX: usize = 2_000;
const ELIFS_MAX: usize = 1_000;
/// Compiling such a tree needs less stack than this; only used pages take memory.
const COMPILE_STACK_BYTES: usize = 64 << 20;

const WHITESPACE: WhitespaceConfig =
    WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true };

pub struct Program {
    instructions: Instructions<'static>,
    blocks: BTreeMap<&'static str, Instructions<'static>>,
    _source: Arc<str>, // `instructions` and `blocks` point into it; dropped last
}

impl Program {
    pub fn new(source: &str) -> Result<Self, Error> {
        let source: Arc<str> = source.into();
        // Safe: the text never moves, and no `Program` gives out references into it.
        let text: &'static str = unsafe { &*Arc::as_ptr(&source) };
        let compile = || -> Result<_, Error> {
            crate::GUARDED.set(true);
            check(text)?;
            let tree = parse(text, "chat", SyntaxConfig, WHITESPACE)?;
            let mut generator = CodeGenerator::new("chat", text);
            generator.compile_stmt(&stmt(&tree));
            Ok(generator.finish())
        };
        let compiled = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(COMPILE_STACK_BYTES);
            thread.spawn_scoped(scope, compile).map(|thread| thread.join())
        });
        let compiled = compiled.map_err(|e| refusal(format!("no thread compiles it: {e}")))?;
        let (instructions, blocks) =
            compiled.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Program { instructions, blocks, _source: source })
    }

    pub fn run(&self, environment: &Environment<'static>, root: Value) -> Result<String, Error> {
        let mut text = String::new();
        let mut out = make_string_output(&mut text);
        let vm = Vm::new(environment);
        vm.eval(&self.instructions, root, &self.blocks, &mut out, AutoEscape::None)?;
        drop(out);
        Ok(text)
    }
}

fn refusal(what: String) -> Error {
    Error::new(minijinja::ErrorKind::SyntaxError, what)
}

/// Limits the depth of the tree, because the parser and all functions on its tree recurse, and the
/// parser itself limits only brackets and blocks.
fn check(source: &str) -> Result<(), Error> {
    if source.len() > SOURCE_BYTES_MAX {
        let bytes = source.len();
        return Err(refusal(format!("it has {bytes} bytes, the limit is {SOURCE_BYTES_MAX}")));
    }
    let (mut tokens, mut elifs) = (0, 0);
    for token in tokenize(source, false, SyntaxConfig, WHITESPACE) {
        let (token, span) = token?;
        match token {
            Token::VariableStart | Token::BlockStart => tokens = 0,
            // Long lists of constants are flat.
            Token::Comma | Token::Colon | Token::Str(_) | Token::String(_) | Token::Int(_) => {}
            other => {
                tokens += 1;
                elifs += usize::from(matches!(other, Token::Ident("elif")));
            }
        }
        if tokens > STATEMENT_TOKENS_MAX {
            return Err(refusal(format!(
                "a statement in line {} has more than {STATEMENT_TOKENS_MAX} words and signs",
                span.start_line
            )));
        }
    }
    if elifs > ELIFS_MAX {
        return Err(refusal(format!("it has {elifs} elifs, the limit is {ELIFS_MAX}")));
    }
    Ok(())
}

fn filter<'a>(name: &'a str, of: Expr<'a>, args: Vec<Expr<'a>>, span: Span) -> Expr<'a> {
    let args = args.into_iter().map(CallArg::Pos).collect();
    Expr::Filter(Spanned::new(ast::Filter { name, expr: Some(of), args }, span))
}
fn charged<'a>(name: &'a str, of: &Expr<'a>) -> Expr<'a> {
    filter(name, expr(of), vec![], of.span())
}

fn stmts<'a>(list: &[Stmt<'a>]) -> Vec<Stmt<'a>> {
    list.iter().map(stmt).collect()
}
fn exprs<'a>(list: &[Expr<'a>]) -> Vec<Expr<'a>> {
    list.iter().map(expr).collect()
}
fn maybe<'a>(one: &Option<Expr<'a>>) -> Option<Expr<'a>> {
    one.as_ref().map(expr)
}

/// Makes a charged statement of one of the tree. It recurses as deep as the tree.
fn stmt<'a>(s: &Stmt<'a>) -> Stmt<'a> {
    macro_rules! node {
        ($kind:ident, $s:ident, { $($field:ident: $value:expr),* $(,)? }) => {
            Stmt::$kind(Spanned::new(ast::$kind { $($field: $value),* }, $s.span()))
        };
    }
    match s {
        Stmt::Template(s) => node!(Template, s, { children: stmts(&s.children) }),
        Stmt::EmitExpr(s) => node!(EmitExpr, s, { expr: expr(&s.expr) }),
        Stmt::EmitRaw(s) => {
            let value = Value::from(s.raw);
            node!(EmitExpr, s, { expr: Expr::Const(Spanned::new(ast::Const { value }, s.span())) })
        }
        Stmt::ForLoop(s) => node!(ForLoop, s, {
            target: target(&s.target),
            iter: expr(&s.iter),
            filter_expr: maybe(&s.filter_expr),
            recursive: s.recursive,
            body: stmts(&s.body),
            else_body: stmts(&s.else_body),
        }),
        Stmt::IfCond(s) => node!(IfCond, s, {
            expr: expr(&s.expr),
            true_body: stmts(&s.true_body),
            false_body: stmts(&s.false_body),
        }),
        Stmt::WithBlock(s) => node!(WithBlock, s, {
            assignments: s.assignments.iter().map(|(to, v)| (target(to), expr(v))).collect(),
            body: stmts(&s.body),
        }),
        Stmt::Set(s) => {
            let into_namespace = matches!(s.target, Expr::GetAttr(_));
            let name = if into_namespace { charges::STORE_IN_NAMESPACE } else { charges::STORE };
            node!(Set, s, { target: target(&s.target), expr: charged(name, &s.expr) })
        }
        Stmt::SetBlock(s) => node!(SetBlock, s, {
            target: target(&s.target),
            filter: maybe(&s.filter),
            body: stmts(&s.body),
        }),
        Stmt::AutoEscape(s) => {
            node!(AutoEscape, s, { enabled: expr(&s.enabled), body: stmts(&s.body) })
        }
        Stmt::FilterBlock(s) => {
            node!(FilterBlock, s, { filter: expr(&s.filter), body: stmts(&s.body) })
        }
        Stmt::Block(s) => {
            node!(Block, s, { name: s.name, required: s.required, body: stmts(&s.body) })
        }
        Stmt::Import(s) => node!(Import, s, { expr: expr(&s.expr), name: expr(&s.name) }),
        Stmt::FromImport(s) => node!(FromImport, s, {
            expr: expr(&s.expr),
            names: s.names.iter().map(|(name, alias)| (expr(name), maybe(alias))).collect(),
        }),
        Stmt::Extends(s) => node!(Extends, s, { name: expr(&s.name) }),
        Stmt::Include(s) => {
            node!(Include, s, { name: expr(&s.name), ignore_missing: s.ignore_missing })
        }
        Stmt::Macro(s) => Stmt::Macro(Spanned::new(a_macro(s), s.span())),
        Stmt::CallBlock(s) => node!(CallBlock, s, {
            call: Spanned::new(call(&s.call), s.call.span()),
            macro_decl: Spanned::new(a_macro(&s.macro_decl), s.macro_decl.span()),
        }),
        Stmt::Continue(s) => Stmt::Continue(Spanned::new(ast::Continue, s.span())),
        Stmt::Break(s) => Stmt::Break(Spanned::new(ast::Break, s.span())),
        Stmt::Do(s) => node!(Do, s, { call: Spanned::new(call(&s.call), s.call.span()) }),
    }
}

fn a_macro<'a>(m: &ast::Macro<'a>) -> ast::Macro<'a> {
    ast::Macro {
        name: m.name,
        args: exprs(&m.args),
        defaults: exprs(&m.defaults),
        body: stmts(&m.body),
    }
}

fn call<'a>(c: &ast::Call<'a>) -> ast::Call<'a> {
    // `loop.changed` compares its arguments with those of the call before.
    let compares = matches!(&c.expr, Expr::GetAttr(attr) if attr.name == "changed");
    let arg = |e: &Expr<'a>| if compares { charged(charges::READ_ALL, e) } else { expr(e) };
    ast::Call { expr: expr(&c.expr), args: args_with(&c.args, arg) }
}

fn args<'a>(list: &[CallArg<'a>]) -> Vec<CallArg<'a>> {
    args_with(list, expr)
}
fn args_with<'a>(list: &[CallArg<'a>], arg: impl Fn(&Expr<'a>) -> Expr<'a>) -> Vec<CallArg<'a>> {
    list.iter()
        .map(|a| match a {
            CallArg::Pos(e) => CallArg::Pos(arg(e)),
            CallArg::Kwarg(name, e) => CallArg::Kwarg(name, arg(e)),
            CallArg::PosSplat(e) => {
                CallArg::PosSplat(filter(charges::COPY, arg(e), vec![], e.span()))
            }
            CallArg::KwargSplat(e) => {
                CallArg::KwargSplat(filter(charges::COPY, arg(e), vec![], e.span()))
            }
        })
        .collect()
}

/// Copies the target of an assignment: names, lists of names, attributes. It contains no call.
fn target<'a>(e: &Expr<'a>) -> Expr<'a> {
    match e {
        Expr::List(l) => {
            let items = l.items.iter().map(target).collect();
            Expr::List(Spanned::new(ast::List { items }, l.span()))
        }
        other => expr(other),
    }
}

fn sign(op: BinOpKind) -> Option<&'static str> {
    Some(match op {
        BinOpKind::Add => "+",
        BinOpKind::Mul => "*",
        BinOpKind::Concat => "~",
        BinOpKind::Eq => "==",
        BinOpKind::Ne => "!=",
        BinOpKind::Lt => "<",
        BinOpKind::Lte => "<=",
        BinOpKind::Gt => ">",
        BinOpKind::Gte => ">=",
        BinOpKind::In => "in?",
        _ => return None, // works on numbers only, or only chooses a value
    })
}

fn compare<'a>(c: &ast::Compare<'a>, span: Span) -> Expr<'a> {
    let [only] = &c.ops[..] else {
        let op = |o: &ast::CompareOp<'a>| ast::CompareOp {
            op: o.op,
            expr: charged(charges::READ_ALL, &o.expr),
        };
        let ops = c.ops.iter().map(op).collect();
        let first = charged(charges::READ_ALL, &c.expr);
        return Expr::Compare(Spanned::new(ast::Compare { expr: first, ops }, span));
    };
    let (name, negated) = match only.op {
        CompareOpKind::Eq => ("==", false),
        CompareOpKind::Ne => ("!=", false),
        CompareOpKind::Lt => ("<", false),
        CompareOpKind::Lte => ("<=", false),
        CompareOpKind::Gt => (">", false),
        CompareOpKind::Gte => (">=", false),
        CompareOpKind::In => ("in?", false),
        CompareOpKind::NotIn => ("in?", true),
    };
    let is = filter(name, expr(&c.expr), vec![expr(&only.expr)], span);
    match negated {
        false => is,
        true => {
            let not = ast::UnaryOp { op: UnaryOpKind::Not, expr: is };
            Expr::UnaryOp(Spanned::new(not, span))
        }
    }
}

/// Makes a charged expression of one of the tree. It recurses as deep as the tree.
fn expr<'a>(e: &Expr<'a>) -> Expr<'a> {
    let span = e.span();
    macro_rules! node {
        ($kind:ident, { $($field:ident: $value:expr),* $(,)? }) => {
            Expr::$kind(Spanned::new(ast::$kind { $($field: $value),* }, span))
        };
    }
    match e {
        Expr::Var(e) => node!(Var, { id: e.id }),
        Expr::Const(e) => node!(Const, { value: e.value.clone() }),
        Expr::Slice(e) => {
            let of = charged(charges::READ, &e.expr);
            let ends = [&e.start, &e.stop, &e.step].map(maybe);
            // The library reverses an empty list wrongly, and one up to its first item.
            let slice = if e.step.is_some() {
                let none = || Expr::Const(Spanned::new(ast::Const { value: ().into() }, span));
                let ends = ends.into_iter().map(|end| end.unwrap_or_else(none)).collect();
                filter(charges::STEPPED, of, ends, span)
            } else {
                let [start, stop, step] = ends;
                node!(Slice, { expr: of, start: start, stop: stop, step: step })
            };
            filter(charges::LIST, slice, vec![], span)
        }
        Expr::UnaryOp(e) => {
            #[allow(clippy::needless_match)] // it cannot be copied
            let op = match e.op {
                UnaryOpKind::Not => UnaryOpKind::Not,
                UnaryOpKind::Neg => UnaryOpKind::Neg,
            };
            node!(UnaryOp, { op: op, expr: expr(&e.expr) })
        }
        Expr::BinOp(e) => match sign(e.op) {
            Some(name) => filter(name, expr(&e.left), vec![expr(&e.right)], span),
            None => node!(BinOp, { op: e.op, left: expr(&e.left), right: expr(&e.right) }),
        },
        Expr::Compare(e) => compare(e, span),
        Expr::IfExpr(e) => node!(IfExpr, {
            test_expr: expr(&e.test_expr),
            true_expr: expr(&e.true_expr),
            false_expr: maybe(&e.false_expr),
        }),
        Expr::Filter(e) => {
            node!(Filter, { name: e.name, expr: maybe(&e.expr), args: args(&e.args) })
        }
        Expr::Test(e) => node!(Test, { name: e.name, expr: expr(&e.expr), args: args(&e.args) }),
        Expr::GetAttr(e) => node!(GetAttr, { expr: expr(&e.expr), name: e.name }),
        Expr::GetItem(e) => node!(GetItem, {
            expr: charged(charges::ITEM, &e.expr),
            subscript_expr: expr(&e.subscript_expr),
        }),
        Expr::Call(e) => Expr::Call(Spanned::new(call(e), span)),
        Expr::List(e) => {
            filter(charges::LIST, node!(List, { items: exprs(&e.items) }), vec![], span)
        }
        Expr::Map(e) => {
            let map = node!(Map, { keys: exprs(&e.keys), values: exprs(&e.values) });
            filter(charges::MAP, map, vec![], span)
        }
    }
}
