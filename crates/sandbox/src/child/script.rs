//! Runs one script in one interpreter: the loop that runs its jobs, sends its requests and waits for answers.
//!
//! Every path ends the process. The interpreter is never torn down, because the kernel does that faster, and because
//! values held on both sides would have to be released first.

use super::globals;
use crate::{
    limits::Limits,
    wire::{FromChild, Method, ScriptException, ToChild, read_message, write_message},
};
use rquickjs::{
    CatchResultExt, CaughtError, Coerced, Context, Ctx, Exception, FromJs, Function, Object, Promise, Runtime, Value,
    context::{EvalOptions, intrinsic},
    promise::PromiseState,
};
use serde_json::value::RawValue;
use std::{cell::RefCell, collections::HashMap, io, process::ExitCode, rc::Rc};

/// JavaScript that runs before the script: the bridge and the console.
const PRELUDE: &str = include_str!("prelude.js");
/// JavaScript that defines a few globals of Node and browsers.
const GLOBALS: &str = include_str!("globals.js");
/// Characters of an exception's message and stack that cross.
const MAX_THROWN_CHARS: usize = 4_000;
/// The pipe to the parent is gone.
const EXIT_PIPE: i32 = 66;
/// The interpreter could not be set up.
const EXIT_SETUP: i32 = 67;

type Language = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::Proxy,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
);

/// The script's open requests.
struct Bridge<'js> {
    limits: Limits,
    started: u32,
    log_lines: usize,
    log_bytes: usize,
    waiting: HashMap<u32, (Function<'js>, Function<'js>)>,
    waits_started: u32,
    /// Timers that have not fired yet.
    timers: HashMap<u32, Function<'js>>,
}

impl Bridge<'_> {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            started: 0,
            log_lines: 0,
            log_bytes: 0,
            waiting: HashMap::new(),
            waits_started: 0,
            timers: HashMap::new(),
        }
    }
}

/// Runs the script and ends the process.
pub(super) fn run(code: &str, limits: Limits) -> ExitCode {
    let Ok(runtime) = Runtime::new() else { std::process::exit(EXIT_SETUP) };
    runtime.set_memory_limit(limits.memory_bytes);
    runtime.set_max_stack_size(limits.stack_bytes);
    let Ok(context) = Context::custom::<Language>(&runtime) else { std::process::exit(EXIT_SETUP) };
    context.with(|ctx| {
        let bridge = Rc::new(RefCell::new(Bridge::new(limits)));
        let ended =
            prepare(&ctx, &bridge).and_then(|()| begin(&ctx, code)).and_then(|promise| settle(&ctx, &bridge, &promise));
        let message = match ended {
            Ok(value) => FromChild::Returned { value },
            Err(error) => FromChild::Threw { error },
        };
        send(&message);
        std::process::exit(0)
    })
}

fn send(message: &FromChild) {
    if write_message(&mut io::stdout().lock(), message).is_err() {
        // Nobody listens any more; there is nothing left to do.
        std::process::exit(EXIT_PIPE);
    }
}

/// Puts `console`, `openclaw` and the globals in and takes `eval` and its kin out.
fn prepare<'js>(ctx: &Ctx<'js>, bridge: &Rc<RefCell<Bridge<'js>>>) -> Result<(), ScriptException> {
    let set_up = || -> rquickjs::Result<()> {
        let named = |name: &str| {
            let mut options = EvalOptions::default();
            options.filename = Some(name.to_owned());
            options
        };
        // Both are compiled before the first takes `eval` away.
        let prelude: Function<'js> = ctx.eval_with_options(PRELUDE, named("prelude.js"))?;
        let globals: Function<'js> = ctx.eval_with_options(GLOBALS, named("globals.js"))?;
        let shared = Rc::clone(bridge);
        let start = Function::new(ctx.clone(), move |ctx: Ctx<'js>, method: String, args: Vec<Value<'js>>| {
            start(&ctx, &shared, &method, &args)
        })?;
        let shared = Rc::clone(bridge);
        let log = Function::new(ctx.clone(), move |ctx: Ctx<'js>, items: Vec<Value<'js>>| log(&ctx, &shared, &items))?;
        prelude.call::<_, ()>((start, log.clone()))?;
        let shared = Rc::clone(bridge);
        let wait = Function::new(ctx.clone(), move |ctx: Ctx<'js>, ms: f64| wait(&ctx, &shared, ms))?;
        let random = Function::new(ctx.clone(), |ctx: Ctx<'js>, count: usize| globals::random(&ctx, count))?;
        let url = Function::new(ctx.clone(), globals::url)?;
        globals.call((wait, random, url, log))
    };
    set_up().catch(ctx).map_err(|e| thrown(ctx, e))
}

/// Compiles the body and calls it.
fn begin<'js>(ctx: &Ctx<'js>, code: &str) -> Result<Promise<'js>, ScriptException> {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.filename = Some("script.js".to_owned());
    // On the line of its own: a comment at the end of the body must not swallow the brace.
    let source = format!("(async () => {{ {code}\n}})");
    let called = ctx
        .eval_with_options::<Function<'js>, _>(source, options)
        .and_then(|body| body.call::<_, Promise<'js>>(()))
        .catch(ctx);
    called.map_err(|e| thrown(ctx, e))
}

/// Runs jobs and takes answers until the script has ended and nothing it asked for is open.
fn settle<'js>(
    ctx: &Ctx<'js>,
    bridge: &Rc<RefCell<Bridge<'js>>>,
    promise: &Promise<'js>,
) -> Result<Box<RawValue>, ScriptException> {
    let mut answer: Option<Result<Box<RawValue>, ScriptException>> = None;
    loop {
        while ctx.execute_pending_job() {}
        if answer.is_none() {
            // Turning the value into JSON can run more of the script, which may ask for more: hence the loop.
            answer = match promise.state() {
                PromiseState::Pending => None,
                _ => match promise.result::<Value<'js>>() {
                    Some(Ok(value)) => Some(to_json(ctx, bridge, value, "the result")),
                    Some(Err(error)) => Some(Err(thrown(ctx, CaughtError::from_error(ctx, error)))),
                    None => None,
                },
            };
            if answer.is_some() {
                continue;
            }
        }
        if bridge.borrow().waiting.is_empty() {
            // Timers end with the script: nobody would see what they do.
            if let Some(answer) = answer {
                return answer;
            }
            if bridge.borrow().timers.is_empty() {
                return Err(ScriptException::new("Error", "the script waits for a promise that nothing will settle"));
            }
        }
        take_answer(ctx, bridge)?;
    }
}

/// Waits for the parent and settles the promise it answers.
fn take_answer<'js>(ctx: &Ctx<'js>, bridge: &Rc<RefCell<Bridge<'js>>>) -> Result<(), ScriptException> {
    let (id, answer) = match read_message(&mut io::stdin().lock()) {
        Ok(ToChild::Answer { id, value }) => (id, Ok(value)),
        Ok(ToChild::Failure { id, error }) => (id, Err(error)),
        Ok(ToChild::Elapsed { id }) => {
            let Some(kept) = bridge.borrow_mut().timers.remove(&id) else { return Ok(()) };
            return kept.call::<_, ()>(()).catch(ctx).map_err(|e| thrown(ctx, e));
        }
        Ok(ToChild::Run { .. }) | Err(_) => std::process::exit(EXIT_PIPE),
    };
    let Some((kept, broken)) = bridge.borrow_mut().waiting.remove(&id) else { return Ok(()) };
    let settled = || -> rquickjs::Result<()> {
        match &answer {
            Ok(value) => kept.call((ctx.json_parse(value.get())?,)),
            Err(error) => {
                let exception = Exception::from_message(ctx.clone(), &error.message)?;
                exception.set("name", error.name.as_str())?;
                exception.set("code", error.code.as_deref())?;
                broken.call((exception,))
            }
        }
    };
    settled().catch(ctx).map_err(|e| thrown(ctx, e))
}

/// `openclaw.tools.*`: sends the request and gives the promise of its answer.
fn start<'js>(
    ctx: &Ctx<'js>,
    bridge: &Rc<RefCell<Bridge<'js>>>,
    method: &str,
    args: &[Value<'js>],
) -> rquickjs::Result<Promise<'js>> {
    let method = match method {
        "search" => Method::Search,
        "describe" => Method::Describe,
        _ => Method::Call,
    };
    let most = bridge.borrow().limits.bridge_calls;
    if bridge.borrow().started >= most {
        return Err(Exception::throw_range(ctx, &format!("a script may make {most} calls")));
    }
    let mut sent = Vec::with_capacity(args.len());
    for value in args {
        // A script's own `toJSON` may throw; that is the caller's exception, not a broken call.
        let json = to_json(ctx, bridge, value.clone(), "an argument")
            .map_err(|error| Exception::throw_type(ctx, &error.message))?;
        sent.push(json);
    }
    let (promise, kept, broken) = ctx.promise()?;
    let id = {
        let mut bridge = bridge.borrow_mut();
        bridge.started += 1;
        let id = bridge.started;
        bridge.waiting.insert(id, (kept, broken));
        id
    };
    send(&FromChild::Bridge { id, method, args: sent });
    Ok(promise)
}

/// A promise that is resolved after this many milliseconds.
fn wait<'js>(ctx: &Ctx<'js>, bridge: &Rc<RefCell<Bridge<'js>>>, ms: f64) -> rquickjs::Result<Promise<'js>> {
    let most = bridge.borrow().limits.timers;
    if bridge.borrow().timers.len() >= most {
        return Err(Exception::throw_range(ctx, &format!("a script may have {most} timers at once")));
    }
    let (promise, kept, _) = ctx.promise()?;
    let id = {
        let mut bridge = bridge.borrow_mut();
        bridge.waits_started += 1;
        let id = bridge.waits_started;
        bridge.timers.insert(id, kept);
        id
    };
    send(&FromChild::Wait { id, ms: ms as u32 });
    Ok(promise)
}

/// `console.*`: one line for one call, until there were enough.
fn log<'js>(ctx: &Ctx<'js>, bridge: &Rc<RefCell<Bridge<'js>>>, items: &[Value<'js>]) {
    {
        let bridge = bridge.borrow();
        if bridge.log_lines > bridge.limits.log_lines || bridge.log_bytes > bridge.limits.log_bytes {
            return;
        }
    }
    let words: Vec<String> = items.iter().map(|item| shown(ctx, item)).collect();
    let mut line = words.join(" ");
    let mut bridge = bridge.borrow_mut();
    let room = bridge.limits.log_bytes;
    if line.len() > room {
        line.truncate(line.floor_char_boundary(room));
    }
    bridge.log_lines += 1;
    bridge.log_bytes += line.len();
    send(&FromChild::Log { line });
}

/// A value as a log shows it.
fn shown<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> String {
    if let Some(text) = value.as_string() {
        return text.to_string().unwrap_or_else(|_| "(text that is no Unicode)".to_owned());
    }
    if let Some(object) = value.as_object()
        && let Some(exception) = Exception::from_object(object.clone())
    {
        let error = of_exception(&exception);
        return format!("{}: {}", error.name, error.message);
    }
    match ctx.json_stringify(value.clone()) {
        Ok(Some(json)) => json.to_string().unwrap_or_else(|_| "(text that is no Unicode)".to_owned()),
        Ok(None) => coerced(ctx, value),
        Err(error) => {
            forget(ctx, error);
            coerced(ctx, value)
        }
    }
}

/// A value as JSON: `undefined` becomes null, and values that JSON cannot express become text.
fn to_json<'js>(
    ctx: &Ctx<'js>,
    bridge: &Rc<RefCell<Bridge<'js>>>,
    value: Value<'js>,
    what: &str,
) -> Result<Box<RawValue>, ScriptException> {
    let most = bridge.borrow().limits.value_bytes;
    let json = match ctx.json_stringify(value.clone()) {
        Ok(Some(json)) => json.to_string().unwrap_or_else(|_| "null".to_owned()),
        Ok(None) if value.is_undefined() => "null".to_owned(),
        Ok(None) => serde_json::Value::String(coerced(ctx, &value)).to_string(),
        Err(error) => {
            let error = thrown(ctx, CaughtError::from_error(ctx, error));
            if error.name != "TypeError" {
                return Err(error);
            }
            serde_json::Value::String(coerced(ctx, &value)).to_string()
        }
    };
    if json.len() > most {
        let message = format!("{what} is {} bytes as JSON; at most {most} cross", json.len());
        return Err(ScriptException::new("RangeError", message));
    }
    RawValue::from_string(json).map_err(|e| ScriptException::new("TypeError", format!("{what} cannot be sent: {e}")))
}

fn coerced<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> String {
    if value.is_symbol() {
        return "Symbol()".to_owned();
    }
    match Coerced::<String>::from_js(ctx, value.clone()) {
        Ok(text) => text.0,
        Err(error) => {
            forget(ctx, error);
            "(a value that cannot be shown)".to_owned()
        }
    }
}

/// An exception in the form that crosses. Reading one can run the script's getters, so nothing is taken for granted.
fn thrown<'js>(ctx: &Ctx<'js>, caught: CaughtError<'js>) -> ScriptException {
    match caught {
        CaughtError::Exception(exception) => of_exception(&exception),
        // Also what the interpreter throws when it has no memory left for an exception.
        CaughtError::Value(value) if value.is_null() => {
            ScriptException::new("Error", "null was thrown, by the script or for lack of memory")
        }
        CaughtError::Value(value) => ScriptException::new("Error", cut(shown(ctx, &value))),
        CaughtError::Error(error) => ScriptException::new("Error", cut(error.to_string())),
    }
}

/// Takes the interpreter's pending exception away, so that the script goes on as if nothing had been thrown.
fn forget(ctx: &Ctx<'_>, error: rquickjs::Error) {
    drop(CaughtError::from_error(ctx, error));
}

fn of_exception(exception: &Exception<'_>) -> ScriptException {
    let object: &Object<'_> = exception.as_object();
    let text = |key: &str| match object.get::<_, Coerced<String>>(key) {
        Ok(text) => Some(cut(text.0)),
        Err(error) => {
            forget(object.ctx(), error);
            None
        }
    };
    ScriptException {
        name: text("name").unwrap_or_else(|| "Error".to_owned()),
        message: text("message").unwrap_or_default(),
        stack: text("stack"),
        code: object.get::<_, Option<String>>("code").unwrap_or_default().map(cut),
    }
}

fn cut(text: String) -> String {
    if text.chars().count() <= MAX_THROWN_CHARS { text } else { text.chars().take(MAX_THROWN_CHARS).collect() }
}
