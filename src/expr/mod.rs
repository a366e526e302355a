//! Expressions of manifests and kernel packages: the Common Expression Language (crate `cel`) over named values, with
//! the few functions that sizes of tensors need. Pure.
//!
//! Integers are 64-bit and overflow is an error; `/` of integers truncates. Functions beside CEL's own:
//! `min(a, …)`, `max(a, …)`, `ceil_div(a, b)`, `sqrt(x)`, `size_of(dtype)` (bytes an element).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use cel::common::ast::{EntryExpr, Expr as Ast, IdedEntryExpr};
use cel::common::types::{CelBool, CelDouble, CelInt, CelString};
use cel::common::value::CowVal;
use cel::context::VariableResolver;
use cel::extractors::Arguments;
use cel::{Context, ExecutionError, IdedExpr, ParseErrors, Program};

use crate::model::{Choices, DType, Value};

/// Bytes of the longest expression. What is parsed, searched and evaluated by recursion is bounded by it: a chain of
/// operators is as deep as it is long.
const LONGEST: usize = 1000;

/// Names of the functions that [`Scope::new`] adds to CEL's own.
pub const FUNCTIONS: [&str; 5] = ["ceil_div", "max", "min", "size_of", "sqrt"];

/// A parsed expression; clones share what was parsed.
#[derive(Clone)]
pub struct Expr(Arc<Parsed>);

struct Parsed {
    source: String,
    form: Form,
    variables: BTreeSet<String>,
    functions: BTreeSet<String>,
    /// `(variable, field)` of every `variable.field`.
    fields: BTreeSet<(String, String)>,
}

/// Names, fields of names and integers are most of what a kernel package holds; they need no interpreter.
enum Form {
    Integer(i64),
    Name,
    /// `name.key`, split at this byte.
    Field(usize),
    Program(Program),
}

/// Functions of CEL itself that a text may call.
const BUILT_IN: [&str; 14] = [
    "all",
    "bool",
    "contains",
    "double",
    "endsWith",
    "exists",
    "has",
    "int",
    "matches",
    "size",
    "startsWith",
    "string",
    "type",
    "uint",
];

impl Expr {
    /// The text that it was parsed from.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// Names of the variables that it reads.
    pub fn variables(&self) -> &BTreeSet<String> {
        &self.0.variables
    }

    /// Names of the functions that it calls; operators are none.
    pub fn functions(&self) -> &BTreeSet<String> {
        &self.0.functions
    }

    /// The fields that it reads of the variable `name`: `block` of `tile.block`.
    pub fn fields_of<'e>(&'e self, name: &'e str) -> impl Iterator<Item = &'e str> {
        self.0.fields.iter().filter(move |(variable, _)| variable == name).map(|(_, field)| field.as_str())
    }

    /// Every function that an expression may call.
    pub fn callable() -> impl Iterator<Item = &'static str> {
        FUNCTIONS.into_iter().chain(BUILT_IN)
    }

    /// An expression that is the literal `value`.
    pub fn literal(value: i64) -> Expr {
        value.to_string().parse().expect("an integer is an expression")
    }

    /// Its value with the names of `scope`.
    ///
    /// # Errors
    /// An unknown name, a type that does not fit, an overflow, a division by zero, or a result that is no scalar.
    pub fn eval(&self, scope: &Scope<'_>) -> Result<Value, EvalError> {
        let error = |reason: String| EvalError { source_text: self.0.source.clone(), reason };
        let program = match &self.0.form {
            Form::Integer(value) => return Ok(Value::Int(*value)),
            Form::Name => {
                return scope
                    .get(&self.0.source)
                    .cloned()
                    .ok_or_else(|| error("no such name is known here".to_owned()));
            }
            Form::Field(dot) => {
                let (name, key) = (&self.0.source[..*dot], &self.0.source[dot + 1..]);
                let value = scope.names.choices(name).and_then(|choices| choices.get(key));
                return value.cloned().ok_or_else(|| error("no such name is known here".to_owned()));
            }
            Form::Program(program) => program,
        };
        match scope.execute(program) {
            Ok(cel::Value::Int(value)) => Ok(Value::Int(value)),
            Ok(cel::Value::UInt(value)) => {
                i64::try_from(value).map(Value::Int).map_err(|_| error(format!("{value} exceeds 64 bits")))
            }
            Ok(cel::Value::Float(value)) if value.is_finite() => Ok(Value::Float(value)),
            Ok(cel::Value::Float(value)) => Err(error(format!("its value is {value}"))),
            Ok(cel::Value::Bool(value)) => Ok(Value::Bool(value)),
            Ok(cel::Value::String(value)) => Ok(Value::Text(value.to_string())),
            Ok(other) => Err(error(format!("its value is a {}, not a number, a boolean or a text", other.type_of()))),
            Err(reason) => Err(error(reason.to_string())),
        }
    }

    /// Its value as a number, integers converted.
    ///
    /// # Errors
    /// As [`Expr::eval`], and when the value is no number.
    pub fn eval_f64(&self, scope: &Scope<'_>) -> Result<f64, EvalError> {
        match self.eval(scope)? {
            Value::Int(value) => Ok(value as f64),
            Value::Float(value) => Ok(value),
            other => Err(self.unexpected(&other, "a number")),
        }
    }

    /// Its value as a count, i.e. an integer that is not negative.
    ///
    /// # Errors
    /// As [`Expr::eval`], and when the value is no such integer.
    pub fn eval_count(&self, scope: &Scope<'_>) -> Result<u64, EvalError> {
        match self.eval(scope)? {
            Value::Int(value) if value >= 0 => Ok(value.unsigned_abs()),
            other => Err(self.unexpected(&other, "an integer that is not negative")),
        }
    }

    /// Its value as a condition.
    ///
    /// # Errors
    /// As [`Expr::eval`], and when the value is no boolean.
    pub fn eval_bool(&self, scope: &Scope<'_>) -> Result<bool, EvalError> {
        match self.eval(scope)? {
            Value::Bool(value) => Ok(value),
            other => Err(self.unexpected(&other, "true or false")),
        }
    }

    fn unexpected(&self, value: &Value, wanted: &str) -> EvalError {
        let reason = format!("its value is the {} {value}, where {wanted} is needed", value.kind());
        EvalError { source_text: self.0.source.clone(), reason }
    }
}

impl FromStr for Expr {
    type Err = ParseError;

    fn from_str(source: &str) -> Result<Self, Self::Err> {
        let refused = |reason: String| ParseError { source_text: source.to_owned(), reason, at: 0 };
        if source.len() > LONGEST {
            return Err(refused(format!("it has {} bytes, at most {LONGEST} are allowed", source.len())));
        }
        if let Some(parsed) = Parsed::without_parser(source) {
            return Ok(Expr(Arc::new(parsed)));
        }
        let program = Program::compile(source).map_err(|errors| ParseError::first_of(source, &errors))?;
        if loops(program.expression()) > 1 {
            return Err(refused("it has a loop inside a loop".to_owned()));
        }
        let references = program.references();
        let variables: BTreeSet<String> = references.variables().into_iter().map(str::to_owned).collect();
        let named = |name: &&str| name.starts_with(|first: char| first.is_ascii_alphabetic());
        let functions = references.functions().into_iter().filter(named).map(str::to_owned).collect();
        let mut fields = BTreeSet::new();
        collect_fields(program.expression(), &mut fields);
        let form = match source.parse() {
            Ok(value) => Form::Integer(value),
            Err(_) => Form::Program(program),
        };
        Ok(Expr(Arc::new(Parsed { source: source.to_owned(), form, variables, functions, fields })))
    }
}

/// Words that CEL keeps for itself; an expression that is one of them is no name.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

impl Parsed {
    /// Names, fields of names and decimal numbers, most of what a kernel package holds, need no parser.
    fn without_parser(source: &str) -> Option<Parsed> {
        let (mut variables, mut fields) = (BTreeSet::new(), BTreeSet::new());
        let form = if source.bytes().all(|byte| byte.is_ascii_digit()) {
            Form::Integer(source.parse().ok()?)
        } else if is_name(source) {
            variables.insert(source.to_owned());
            Form::Name
        } else {
            let (name, key) = source.split_once('.').filter(|(name, key)| is_name(name) && is_name(key))?;
            variables.insert(name.to_owned());
            fields.insert((name.to_owned(), key.to_owned()));
            Form::Field(name.len())
        };
        Some(Parsed { source: source.to_owned(), form, variables, functions: BTreeSet::new(), fields })
    }
}

/// A name by CEL's rules, and no reserved word.
fn is_name(text: &str) -> bool {
    let is_start = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    text.as_bytes().first().is_some_and(is_start)
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !RESERVED.contains(&text)
}

/// How deep loops (`all`, `exists`, `map`, …) stand in one another in `node`: the time of an evaluation is a power of it.
fn loops(node: &IdedExpr) -> usize {
    let deepest = |nodes: &mut dyn Iterator<Item = &IdedExpr>| nodes.map(loops).max().unwrap_or(0);
    let entries = |entries: &[IdedEntryExpr]| {
        let of = |entry: &IdedEntryExpr| match &entry.expr {
            EntryExpr::StructField(field) => loops(&field.value),
            EntryExpr::MapEntry(entry) => loops(&entry.key).max(loops(&entry.value)),
        };
        entries.iter().map(of).max().unwrap_or(0)
    };
    match &node.expr {
        Ast::Unspecified | Ast::Ident(_) | Ast::Literal(_) => 0,
        Ast::Select(select) => loops(&select.operand),
        Ast::Call(call) => deepest(&mut call.args.iter().chain(call.target.as_deref())),
        Ast::List(list) => deepest(&mut list.elements.iter()),
        Ast::Map(map) => entries(&map.entries),
        Ast::Struct(of) => entries(&of.entries),
        Ast::Comprehension(each) => {
            let parts = [&each.iter_range, &each.accu_init, &each.loop_cond, &each.loop_step, &each.result];
            1 + deepest(&mut parts.into_iter())
        }
    }
}

/// Adds `(variable, field)` of every `variable.field` in `node`.
fn collect_fields(node: &IdedExpr, fields: &mut BTreeSet<(String, String)>) {
    match &node.expr {
        Ast::Select(select) => match &select.operand.expr {
            Ast::Ident(variable) => {
                fields.insert((variable.clone(), select.field.clone()));
            }
            _ => collect_fields(&select.operand, fields),
        },
        Ast::Call(call) => {
            call.target.iter().for_each(|target| collect_fields(target, fields));
            call.args.iter().for_each(|argument| collect_fields(argument, fields));
        }
        Ast::List(list) => list.elements.iter().for_each(|element| collect_fields(element, fields)),
        // Comprehensions, maps and structs have no scalar value of their own; what they read is checked when evaluated.
        _ => {}
    }
}

impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expr({:?})", self.0.source)
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.source)
    }
}

impl PartialEq for Expr {
    fn eq(&self, other: &Self) -> bool {
        self.0.source == other.0.source
    }
}

/// The text is no expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{source_text}` is not an expression: {reason}")]
pub struct ParseError {
    pub source_text: String,
    pub reason: String,
    /// Byte of the text at which it stops being an expression.
    pub at: usize,
}

impl ParseError {
    fn first_of(source: &str, errors: &ParseErrors) -> ParseError {
        let first = errors.errors.iter().min_by_key(|error| error.pos);
        let (line, column) = first.map_or((1, 1), |error| error.pos);
        let index = |from_one: isize| usize::try_from(from_one - 1).unwrap_or(0);
        let line_start: usize = source.split_inclusive('\n').take(index(line)).map(str::len).sum();
        let column_bytes = source[line_start..].char_indices().nth(index(column)).map(|(byte, _)| byte);
        ParseError {
            source_text: source.to_owned(),
            reason: first.map_or_else(|| "it is empty".to_owned(), |error| plain_reason(&error.msg)),
            at: column_bytes.map_or(source.len(), |byte| line_start + byte),
        }
    }
}

/// The parser's message in plain words: without the list of every token that would have fitted.
fn plain_reason(message: &str) -> String {
    let message = message.trim_start_matches("Syntax error: ");
    let message = message.split(" expecting ").next().unwrap_or(message);
    if message.contains("<EOF>") {
        return "it ends too early".to_owned();
    }
    for prefix in ["mismatched input ", "extraneous input ", "no viable alternative at input "] {
        if let Some(input) = message.strip_prefix(prefix) {
            return format!("{} does not fit here", input.replace('\'', "`"));
        }
    }
    message.to_owned()
}

/// The expression has no value here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{source_text}` does not evaluate: {reason}")]
pub struct EvalError {
    pub source_text: String,
    pub reason: String,
}

/// Names and values that expressions are evaluated with. Inner scopes see their parents' names.
pub struct Scope<'p> {
    functions: Functions<'p>,
    names: Names<'p>,
}

/// The functions, of which every inner scope has the same.
enum Functions<'p> {
    Own(Box<Context<'static, 'static>>),
    Outer(&'p Context<'static, 'static>),
}

/// Names as the interpreter asks for them.
#[derive(Default)]
struct Names<'p> {
    scalars: BTreeMap<String, Value>,
    /// Names of which `name.key` has a value.
    choices: BTreeMap<String, Choices>,
    outer: Option<&'p Names<'p>>,
}

impl Default for Scope<'static> {
    fn default() -> Self {
        Self::new()
    }
}

impl Scope<'static> {
    /// The functions, and no name.
    pub fn new() -> Self {
        let mut context = Context::default();
        let declared = context
            .add_function("min", |Arguments(values): Arguments| extreme("min", &values, |a, b| a < b))
            .and_then(|()| {
                context.add_function("max", |Arguments(values): Arguments| extreme("max", &values, |a, b| a > b))
            })
            .and_then(|()| context.add_function("ceil_div", ceil_div))
            .and_then(|()| context.add_function("sqrt", |value: cel::Value| number("sqrt", &value).map(f64::sqrt)))
            .and_then(|()| context.add_function("size_of", size_of));
        declared.expect("no name of ours is one of CEL's");
        Scope { functions: Functions::Own(Box::new(context)), names: Names::default() }
    }
}

impl Scope<'_> {
    /// A scope inside this one, without names of its own.
    pub fn inner(&self) -> Scope<'_> {
        let functions = Functions::Outer(self.functions());
        Scope { functions, names: Names { outer: Some(&self.names), ..Names::default() } }
    }

    fn functions(&self) -> &Context<'static, 'static> {
        match &self.functions {
            Functions::Own(context) => context,
            Functions::Outer(context) => context,
        }
    }

    /// The scalar called `name`, here or in an outer scope.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.names.chain().find_map(|names| names.scalars.get(name))
    }

    /// Gives `name` a value, hiding an outer one.
    pub fn set(&mut self, name: &str, value: &Value) {
        self.names.scalars.insert(name.to_owned(), value.clone());
    }

    /// Gives `name.key` a value for every choice, hiding all of an outer `name`.
    pub fn set_choices(&mut self, name: &str, choices: &Choices) {
        self.names.choices.insert(name.to_owned(), choices.clone());
    }

    fn execute(&self, program: &Program) -> Result<cel::Value, ExecutionError> {
        let functions: &Context<'_, '_> = self.functions();
        let mut context = functions.new_inner_scope();
        context.set_variable_resolver(&self.names);
        program.execute(&context)
    }
}

impl<'p> Names<'p> {
    /// These names, then the outer ones, innermost first.
    fn chain(&self) -> impl Iterator<Item = &Names<'p>> {
        std::iter::successors(Some(self), |names| names.outer)
    }

    fn choices(&self, name: &str) -> Option<&Choices> {
        self.chain().find_map(|names| names.choices.get(name))
    }
}

/// Asked for `name.key` as a whole first, then for `name`.
impl VariableResolver for Names<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        if let Some((name, key)) = variable.split_once('.') {
            return self.choices(name)?.get(key).map(to_cel);
        }
        if let Some(value) = self.chain().find_map(|names| names.scalars.get(variable)) {
            return Some(to_cel(value));
        }
        let choices = self.choices(variable)?;
        let map: HashMap<String, cel::Value> =
            choices.iter().map(|(key, value)| (key.clone(), to_cel_value(value))).collect();
        cel::Value::from(map).try_into().ok().map(CowVal::Owned)
    }
}

fn to_cel(value: &Value) -> CowVal<'_, '_> {
    match value {
        Value::Bool(value) => CowVal::owned(CelBool::from(*value)),
        Value::Int(value) => CowVal::owned(CelInt::from(*value)),
        Value::Float(value) => CowVal::owned(CelDouble::from(*value)),
        Value::Text(value) => CowVal::owned(CelString::from(value.as_str())),
    }
}

fn to_cel_value(value: &Value) -> cel::Value {
    match value {
        Value::Bool(value) => cel::Value::Bool(*value),
        Value::Int(value) => cel::Value::Int(*value),
        Value::Float(value) => cel::Value::Float(*value),
        Value::Text(value) => cel::Value::String(Arc::new(value.clone())),
    }
}

fn number(function: &str, value: &cel::Value) -> Result<f64, ExecutionError> {
    match value {
        cel::Value::Int(value) => Ok(*value as f64),
        cel::Value::UInt(value) => Ok(*value as f64),
        cel::Value::Float(value) => Ok(*value),
        other => Err(ExecutionError::function_error(function, format!("{other:?} is not a number"))),
    }
}

fn extreme(
    function: &str,
    values: &[cel::Value],
    better: impl Fn(f64, f64) -> bool,
) -> Result<cel::Value, ExecutionError> {
    let mut best: Option<&cel::Value> = None;
    for value in values {
        let number_of = number(function, value)?;
        let wins = match best {
            None => true,
            Some(best) => better(number_of, number(function, best)?),
        };
        if wins {
            best = Some(value);
        }
    }
    best.cloned().ok_or_else(|| ExecutionError::function_error(function, "it needs at least one number"))
}

fn ceil_div(a: i64, b: i64) -> Result<i64, ExecutionError> {
    if b <= 0 || a < 0 {
        return Err(ExecutionError::function_error("ceil_div", format!("{a} / {b} has no count")));
    }
    Ok(a.div_euclid(b) + i64::from(a.rem_euclid(b) != 0))
}

fn size_of(dtype: Arc<String>) -> Result<i64, ExecutionError> {
    let dtype: DType = dtype.parse().map_err(|error| ExecutionError::function_error("size_of", error))?;
    Ok(dtype.bytes() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eval(source: &str) -> Result<Value, EvalError> {
        let mut scope = Scope::new();
        scope.set("s", &Value::Int(16));
        scope.set("dtype", &Value::Text("bfloat16".into()));
        scope.set_choices("tile", &Choices::from([("block".to_owned(), Value::Int(64))]));
        source.parse::<Expr>().expect("it parses").eval(&scope)
    }

    #[test]
    fn sizes_evaluate() {
        assert_eq!(eval("2 * s * size_of(dtype)"), Ok(Value::Int(64)));
        assert_eq!(eval("ceil_div(100, tile.block)"), Ok(Value::Int(2)));
        assert_eq!(eval("min(s, 3, tile.block)"), Ok(Value::Int(3)));
        assert_eq!(eval("max(1, s)"), Ok(Value::Int(16)));
        assert_eq!(eval("1.0 / sqrt(s)"), Ok(Value::Float(0.25)));
        assert_eq!(eval("s == 16 && dtype == 'bfloat16'"), Ok(Value::Bool(true)));
    }

    #[test]
    fn what_has_no_value_is_an_error_with_the_text() {
        for source in ["q + 1", "s / 0", "9223372036854775807 + s", "ceil_div(1, 0)", "1.0 / 0.0", "[s]", "s + 1.5"] {
            let error = eval(source).expect_err(source);
            assert!(error.to_string().contains(source), "{error}");
        }
    }

    #[test]
    fn an_inner_scope_hides_outer_names() {
        let mut outer = Scope::new();
        outer.set("a", &Value::Int(1));
        let mut inner = outer.inner();
        inner.set("a", &Value::Int(2));
        let expr: Expr = "a".parse().expect("it parses");
        assert_eq!((expr.eval(&outer), expr.eval(&inner)), (Ok(Value::Int(1)), Ok(Value::Int(2))));
    }

    #[test]
    fn variables_are_listed() {
        let expr: Expr = "s == 16 && tile.block > min(t, 2)".parse().expect("it parses");
        assert_eq!(expr.variables().iter().collect::<Vec<_>>(), ["s", "t", "tile"]);
        assert_eq!(expr.fields_of("tile").collect::<Vec<_>>(), ["block"]);
        assert_eq!(expr.functions().iter().collect::<Vec<_>>(), ["min"]);
    }

    #[test]
    fn a_syntax_error_knows_where_it_is() {
        let at = |source: &str| source.parse::<Expr>().expect_err(source).at;
        assert_eq!(at("s == "), 5);
        assert_eq!(at("s = 16"), 2);
        assert_eq!(at("'µ' == s t"), 10);
        assert_eq!(at(""), 0);
        let reason = |source: &str| source.parse::<Expr>().expect_err(source).reason;
        assert_eq!(reason("s == "), "it ends too early");
        assert_eq!(reason("(s = 16)"), "token recognition error at: '= '");
        assert_eq!(reason("s == s t"), "`t` does not fit here");
    }

    #[test]
    fn the_longest_chains_fit_the_stack_of_any_thread_and_longer_ones_are_refused() {
        let long = |link: &str| {
            let count = (LONGEST - 1) / link.len();
            format!("1{}", link.repeat(count))
        };
        // Threads of a pool have 2 MiB.
        let evaluates = move || {
            for link in ["+1", "*s", ".a", "[1]", "?1:1", "||s"] {
                let text = long(link);
                assert!(text.len() <= LONGEST);
                // With a value or without: it comes back.
                let _ = text.parse::<Expr>().map(|expr| expr.eval(&Scope::new()));
            }
            for nested in ["(", "[", "-", "!", "{1:", "min("] {
                assert!(nested.repeat(LONGEST / nested.len()).parse::<Expr>().is_err());
            }
        };
        let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(evaluates).expect("a thread");
        thread.join().expect("it ends well");
        let chain: Expr = long("+1").parse().expect("it is as long as may be");
        assert_eq!(chain.eval(&Scope::new()), Ok(Value::Int(500)));
        let error = format!("{}+1", long("+1")).parse::<Expr>().expect_err("too long");
        assert_eq!(error.reason, "it has 1001 bytes, at most 1000 are allowed");
    }

    #[test]
    fn a_loop_may_not_stand_in_another() {
        assert_eq!(eval("[1, 2].all(i, i < s) && [3].exists(i, i == 3)"), Ok(Value::Bool(true)));
        for source in [
            "[1].all(i, [1].all(j, i == j))",
            "[[1].map(i, i)].map(i, i) == []",
            "{'a': [1].filter(i, [1].exists_one(j, i == j))} == {}",
            "min(1, [1].map(i, size([2].map(j, j)))[0]) == 1 || true",
        ] {
            assert_eq!(source.parse::<Expr>().expect_err(source).reason, "it has a loop inside a loop");
        }
    }

    #[test]
    fn names_and_numbers_are_what_the_parser_makes_of_them() {
        for source in ["s", "_x", "block_t", "B2", "0", "007", "9223372036854775807", "tile.block_t"] {
            let program = Program::compile(source).expect(source);
            let parsed = Parsed::without_parser(source).expect(source);
            let variables: BTreeSet<String> = program.references().variables().into_iter().map(str::to_owned).collect();
            assert_eq!(parsed.variables, variables, "{source}");
            let mut fields = BTreeSet::new();
            collect_fields(program.expression(), &mut fields);
            assert_eq!(parsed.fields, fields, "{source}");
            assert!(program.references().functions().is_empty());
        }
        for source in
            RESERVED.into_iter().chain(["", "2s", "-1", "9223372036854775808", " s", "s.", "s.t.u", "s.in", "ü", "s s"])
        {
            assert!(Parsed::without_parser(source).is_none(), "{source}");
        }
    }
}
