//! Scripts that try to get out, to break the protocol, or to use everything up. Each must end as the table says, and the
//! parent must be none the worse for it.

use crate::harness::{Echo, limits, run, run_with, runner, value};
use serde_json::{Value, json};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use toolyard_sandbox::Cause;

/// How an attempt must end.
enum Ends {
    /// It returns this.
    With(Value),
    /// It throws an exception that says this.
    Throwing(&'static str),
    /// It is killed when its time is up.
    OutOfTime,
    /// It throws for lack of memory or stack, or is killed: either is contained.
    OutOfMemory,
}
use Ends::{OutOfMemory, OutOfTime, Throwing, With};

/// Evaluates to what `typeof` says of each name.
fn types(names: &[&str]) -> String {
    format!("return [{}]", names.iter().map(|name| format!("typeof {name}")).collect::<Vec<_>>().join(", "))
}

fn undefined(names: &[&str]) -> (String, Ends) {
    (types(names), With(json!(vec!["undefined"; names.len()])))
}

fn attempts() -> Vec<(&'static str, String, Ends)> {
    let mut list: Vec<(&'static str, String, Ends)> = Vec::new();
    let mut add = |name: &'static str, code: &str, ends: Ends| list.push((name, code.to_owned(), ends));
    let off = || Throwing("is off");

    // Files, network, processes, environment: there is nothing to reach them with.
    for (name, names) in [
        (
            "node globals",
            &["require", "process", "module", "exports", "Buffer", "global", "__dirname", "__filename"][..],
        ),
        ("quickjs modules", &["std", "os", "bjson", "scriptArgs", "print", "load", "loadScript"]),
        ("other hosts", &["Deno", "Bun", "window", "self", "document", "navigator", "WorkerGlobalScope"]),
        ("network", &["fetch", "XMLHttpRequest", "WebSocket", "EventSource", "Request"]),
        ("threads", &["Worker", "SharedArrayBuffer", "Atomics", "MessageChannel"]),
        ("clocks", &["performance", "Temporal"]),
        ("machine code", &["WebAssembly", "gc", "ShadowRealm", "FinalizationRegistry", "WeakRef"]),
    ] {
        let (code, ends) = undefined(names);
        add(name, &code, ends);
    }
    add("import fs", "return (await import('fs')).readFileSync('/etc/passwd')", Throwing("could not load"));
    add("import node:fs", "return await import('node:fs')", Throwing("could not load"));
    add("import std", "return (await import('std')).loadFile('/etc/passwd')", Throwing("could not load"));
    add("import os", "return (await import('os')).exec(['/bin/id'])", Throwing("could not load"));
    add("import a file", "return await import('/etc/passwd')", Throwing("could not load"));
    add("import from the network", "return await import('http://127.0.0.1/x.js')", Throwing("could not load"));
    add("import data", "return await import('data:text/javascript,export default 1')", Throwing("could not load"));
    add("static import", "import fs from 'fs'; return 1", Throwing("SyntaxError"));
    add("import.meta", "return import.meta.url", Throwing("SyntaxError"));
    add("environment", "return globalThis.process?.env ?? null", With(json!(null)));
    add(
        "every global is known",
        "const known = new Set(['console','openclaw','eval','Function','globalThis']); \
         return Object.getOwnPropertyNames(globalThis).filter(n => !known.has(n) && /fetch|require|process|file|exec|spawn|socket|worker|timer|load|print|std|os$/i.test(n))",
        With(json!([])),
    );

    // Code from text.
    add("eval", "return eval('1')", off());
    add("indirect eval", "return (0, eval)('1')", off());
    add("eval by name", "return globalThis['ev' + 'al']('1')", off());
    add("Function", "return Function('return 1')()", off());
    add("new Function", "return new Function('return 1')()", off());
    add("constructor of a function", "return (() => {}).constructor('return 1')()", off());
    add("constructor of a method", "return [].map.constructor('return 1')()", off());
    add("async constructor", "return await (async () => {}).constructor('return 1')()", off());
    add("generator constructor", "return (function* () {}).constructor('yield 1')().next().value", off());
    add("async generator constructor", "return (async function* () {}).constructor('yield 1')()", off());
    add(
        "parent of a constructor",
        "return Object.getPrototypeOf((async () => {}).constructor)('return 1')()",
        Throwing("not a function"),
    );
    add("Reflect.construct", "return Reflect.construct(Function, ['return 1'])()", off());
    add(
        "new.target",
        "return Reflect.construct(Object, ['return 1'], Function) instanceof Function",
        With(json!(true)),
    );
    add("bound constructor", "return (function () {}).bind().constructor('return 1')()", off());
    add("class extends Function", "class F extends Function {}; return new F('return 1')()", off());
    add(
        "constructor of an error",
        "try { null.x } catch (e) { return e.constructor.constructor('return 1')() }",
        off(),
    );
    add("constructor of the bridge", "return openclaw.tools.search.constructor('return 1')()", off());
    add("constructor of the console", "return console.log.constructor('return 1')()", off());
    add("constructor of a handle", "return openclaw.tools.search('x').then.constructor('return 1')()", off());
    add("constructor through a promise", "return Promise.resolve().then.constructor('return 1')()", off());
    add(
        "getting the constructor back",
        "Function.prototype.constructor = null; return typeof Function.prototype.constructor",
        With(json!("function")),
    );
    add(
        "defining the constructor anew",
        "Object.defineProperty(Function.prototype, 'constructor', {value: 1}); return 1",
        Throwing("TypeError"),
    );
    add("deleting eval", "'use strict'; delete globalThis.eval; return 1", Throwing("TypeError"));
    add(
        "callee and caller",
        "return (function () { return typeof arguments.callee.caller })()",
        With(json!("undefined")),
    );
    add(
        "prepareStackTrace",
        "Error.prepareStackTrace = (_, sites) => sites.map(s => typeof s.getThis); const s = new Error().stack; return Array.isArray(s) || typeof s === 'string'",
        With(json!(true)),
    );
    add(
        "closing the wrapper",
        "}); globalThis.outside = 1; (async () => { return [typeof process, typeof outside]",
        With(json!(["undefined", "number"])),
    );
    add("an html comment", "<!-- return 1\nreturn 2", With(json!(2)));

    // Prototypes and the bridge.
    add("replacing openclaw", "'use strict'; openclaw = {}; return 1", Throwing("TypeError"));
    add("replacing a tool method", "'use strict'; openclaw.tools.call = () => 1; return 1", Throwing("TypeError"));
    add("deleting tools", "'use strict'; delete openclaw.tools; return 1", Throwing("TypeError"));
    add("replacing the console", "'use strict'; console.log = () => 1; return 1", Throwing("TypeError"));
    add(
        "no way up from openclaw",
        "return [Object.getPrototypeOf(openclaw), Object.getPrototypeOf(openclaw.tools), openclaw.constructor ?? null]",
        With(json!([null, null, null])),
    );
    add(
        "Object.prototype.then",
        "Object.prototype.then = function (r) { r('polluted') }; return (await openclaw.tools.search('x')) === 'polluted'",
        With(json!(true)),
    );
    add(
        "Promise.prototype.then",
        "Promise.prototype.then = () => { throw 1 }; return (await openclaw.tools.search('x')).method",
        With(json!("search")),
    );
    add(
        "JSON.stringify replaced",
        "JSON.stringify = () => '{\"type\":\"result\"}'; return {a: 1}",
        With(json!({"a": 1})),
    );
    add("Object.prototype.toJSON", "Object.prototype.toJSON = () => 'all'; return {a: 1}", With(json!("all")));
    add(
        "a result that looks like a message",
        "return {bridge: {id: 1, method: 'call', args: []}}",
        With(json!({"bridge": {"id": 1, "method": "call", "args": []}})),
    );
    add(
        "a log that looks like a message",
        "console.log('\\u0010\\u0000\\u0000\\u0000{\"returned\":{\"value\":1}}'); return 2",
        With(json!(2)),
    );
    add(
        "a method that does not exist",
        "return typeof openclaw.tools.exec + typeof openclaw.tools.__proto__",
        With(json!("undefinedundefined")),
    );
    add(
        "prototype as an argument",
        "return (await openclaw.tools.call('x', JSON.parse('{\"__proto__\": {\"a\": 1}}'))).args[1]",
        With(json!({"__proto__": {"a": 1}})),
    );
    add(
        "functions as arguments",
        "return (await openclaw.tools.call(() => 1, Symbol('x'))).args",
        With(json!(["() => 1", "Symbol()"])),
    );
    add("then without functions", "openclaw.tools.search('x').then(1, 2); return 3", With(json!(3)));
    add(
        "an argument that throws",
        "await openclaw.tools.call('x', {toJSON() { throw new Error('mine') }})",
        Throwing("mine"),
    );
    add("an argument too large", "await openclaw.tools.call('x', 'y'.repeat(2 << 20))", Throwing("at most"));
    add(
        "an argument too deep",
        "let a = []; for (let i = 0; i < 500; i++) a = [a]; await openclaw.tools.call('x', a)",
        Throwing("argument"),
    );
    add(
        "text that is no Unicode",
        "return await openclaw.tools.call('x', '\\ud800').then(() => 'sent', e => 'refused')",
        With(json!("refused")),
    );
    add("an answer too large", "await openclaw.tools.call('huge')", Throwing("at most"));
    add("a result too large", "return 'y'.repeat(3 << 20)", Throwing("at most"));
    add("a result too deep", "let a = []; for (let i = 0; i < 500; i++) a = [a]; return a", Throwing("the result"));
    add(
        "a proxy as result",
        "return new Proxy({}, {get() { throw new Error('trap') }, ownKeys() { throw new Error('trap') }})",
        Throwing("trap"),
    );
    add("throwing null", "throw null", Throwing("null"));
    add("throwing a symbol", "throw Symbol('x')", Throwing("Symbol"));
    add(
        "an error whose message throws",
        "throw Object.defineProperty(new Error(), 'message', {get() { throw 1 }})",
        Throwing("Error"),
    );
    add("rejections nobody handles", "Promise.reject(1); Promise.reject(2); return 3", With(json!(3)));

    // Floods.
    add(
        "more requests than allowed",
        "for (let i = 0; i < 300; i++) await openclaw.tools.search('x'); return 1",
        Throwing("may make 256 calls"),
    );
    add(
        "all requests at once",
        "await Promise.all(Array.from({length: 1000}, () => openclaw.tools.search('x'))); return 1",
        Throwing("may make 256 calls"),
    );
    add(
        "requests nobody waits for",
        "for (let i = 0; i < 1e6; i++) openclaw.tools.search('x'); return 1",
        With(json!(1)),
    );
    add("logs without end", "for (;;) console.log('x'.repeat(1000))", OutOfTime);
    add(
        "jobs without end",
        "const f = () => { Promise.resolve().then(f) }; f(); await new Promise(() => {})",
        OutOfTime,
    );
    // Each waits for the next: on a quick machine memory ends before a short time does.
    add("a chain of jobs without end", "const f = () => Promise.resolve().then(f); await f()", OutOfMemory);

    // Time.
    add("a loop", "for (;;) {}", OutOfTime);
    add("a loop after an await", "await openclaw.tools.search('x'); for (;;) {}", OutOfTime);
    add("a loop after the result", "openclaw.tools.search('x').then(() => { for (;;) {} }); return 1", OutOfTime);
    add("a loop in toJSON", "return {toJSON() { for (;;) {} }}", OutOfTime);
    add(
        "a loop in an error's message",
        "throw Object.defineProperty(new Error(), 'message', {get() { for (;;) {} }})",
        OutOfTime,
    );
    add("a loop in a comparison", "[1, 2].sort(() => { for (;;) {} })", OutOfTime);
    add("a loop that catches everything", "for (;;) { try { for (;;) {} } catch {} finally { continue } }", OutOfTime);
    add("a catastrophic expression", "return /^(a+)+$/.test('a'.repeat(60) + '!')", OutOfTime);
    add("a tool that does not answer", "await openclaw.tools.call('slow')", OutOfTime);
    add("an endless generator", "return [...(function* () { for (;;) yield 1 })()].length", OutOfMemory);

    // Memory and stack.
    add("an array without end", "const a = []; for (;;) a.push(new Array(1000).fill(1))", OutOfMemory);
    add("text without end", "let s = 'x'; for (;;) s += s + s", OutOfMemory);
    add("one large text", "return 'x'.repeat(2 ** 30).length", OutOfMemory);
    add("one large buffer", "return new ArrayBuffer(2 ** 31).byteLength", OutOfMemory);
    add("one large typed array", "return new Float64Array(2 ** 28).length", OutOfMemory);
    add("a map without end", "const m = new Map(); for (let i = 0; ; i++) m.set(i, {i})", OutOfMemory);
    add("a large number", "return (2n ** (2n ** 34n)).toString().length", OutOfMemory);
    add(
        "memory that comes back",
        "for (let i = 0; i < 50; i++) { try { new Array(1e8).fill(0) } catch {} } return 'alive'",
        With(json!("alive")),
    );
    add("recursion", "const f = () => f() + 1; return f()", OutOfMemory);
    add(
        "recursion by catching",
        "let n = 0; const f = () => { n++; try { f() } catch { } }; f(); return n > 0",
        With(json!(true)),
    );
    add("recursion in JSON", "let s = '['.repeat(1e6); return JSON.parse(s)", OutOfMemory);
    add("recursion in a proxy", "const p = new Proxy({}, {get(t, k, r) { return r[k] }}); return p.x", OutOfMemory);
    add("recursion in toString", "const a = []; a.toString = () => '' + a; return '' + a", OutOfMemory);
    add("recursion in an expression", "return new RegExp('('.repeat(1e5) + ')'.repeat(1e5)).test('')", OutOfMemory);
    list.push((
        "recursion in the source",
        format!("return {}1{}", "(".repeat(50_000), ")".repeat(50_000)),
        OutOfMemory,
    ));
    list.push(("a source too large", " ".repeat(300 << 10), Throwing("at most")));
    list
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[toolyard_shows::shows("001-6-03", "001-6-10")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attempt_is_contained_and_the_parent_is_unharmed() {
    value("return 1").await; // what is opened once is open now
    let before = open_descriptors();
    let attempts = attempts();
    assert!(attempts.len() >= 60, "{}", attempts.len());
    let count = attempts.len();
    let mut failures = Vec::new();
    let mut running = tokio::task::JoinSet::new();
    let gate = Arc::new(tokio::sync::Semaphore::new(4));
    for (name, code, ends) in attempts {
        let gate = gate.clone();
        running.spawn(async move {
            let _permit = gate.acquire_owned().await.unwrap();
            // A script that is to end by itself gets so much time that only one that hangs can use it up.
            let time = if matches!(ends, OutOfTime) { 700 } else { 600_000 };
            let ended = run_with(&code, limits(time), &Arc::new(Echo::default())).await;
            let as_expected = match (&ends, &ended) {
                (With(value), Ok(finished)) => finished.value == *value,
                (Throwing(text), Err(failure)) => {
                    matches!(failure.cause, Cause::Threw(_) | Cause::Refused(_))
                        && failure.cause.to_string().contains(text)
                }
                (OutOfTime, Err(failure)) => failure.cause == Cause::TimedOut(700),
                (OutOfMemory, Err(failure)) => match &failure.cause {
                    Cause::Threw(thrown) => {
                        ["memory", "stack", "length", "large", "size", "recursion", "too long", "too many", "maximum"]
                            .iter()
                            .any(|word| thrown.message.to_lowercase().contains(word))
                    }
                    Cause::Died { .. } => true,
                    _ => false,
                },
                _ => false,
            };
            let ended = match ended {
                Ok(finished) => format!("{}", finished.value).chars().take(200).collect(),
                Err(failure) => format!("{:?}", failure.cause).chars().take(400).collect::<String>(),
            };
            (!as_expected).then(|| format!("{name}: {ended}"))
        });
    }
    while let Some(ended) = running.join_next().await {
        failures.extend(ended.unwrap());
    }
    assert!(failures.is_empty(), "{} of {count} not as expected:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(value("return 'alive'").await, json!("alive"));
    // Pipes close a moment after their child, and tests beside this one have pipes too, until they end.
    for _ in 0..30_000 {
        if open_descriptors() <= before {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(open_descriptors() <= before, "{} descriptors, {before} before", open_descriptors());
}

#[tokio::test]
async fn logs_are_kept_up_to_a_number_and_a_size() {
    let finished = run("for (let i = 0; i < 5000; i++) console.log('line', i); return 1").await.unwrap();
    assert_eq!(finished.logs.len(), 201, "the last one says that there was more");
    assert_eq!(finished.logs[0], "line 0");
    let finished = run("console.log('x'.repeat(1 << 20)); console.log('y'); return 1").await.unwrap();
    assert!(finished.logs.iter().map(String::len).sum::<usize>() <= 33 << 10);
}

#[tokio::test]
async fn a_child_that_speaks_out_of_turn_is_stopped() {
    // Programs that are no child of ours, but write to the parent as a child that was taken over could.
    let dir = tempfile::tempdir().unwrap();
    for (name, script, why) in [
        ("noise", "printf 'hello, this is no frame'", "too large"),
        ("size", "printf '\\377\\377\\377\\177'; exec sleep 600", "too large"),
        ("json", "printf '\\005\\000\\000\\000{nope'; exec sleep 600", "cannot be read"),
        ("kind", "printf '\\013\\000\\000\\000{\"other\":{}}'; exec sleep 600", "cannot be read"),
        ("half", "printf '\\377\\000\\000\\000abc'", "exited with"),
        (
            "id",
            "m='{\"bridge\":{\"id\":7,\"method\":\"call\",\"args\":[]}}'; printf \"\\\\$(printf %03o ${#m})\\\\000\\\\000\\\\000$m\"; exec sleep 600",
            "request 7 after request 0",
        ),
        ("silent", "exit 3", "exited with code 3"),
        ("crash", "kill -SEGV $$", "SIGSEGV"),
        ("stderr", "echo reason >&2; exit 9", "code 9: reason"),
    ] {
        let program = dir.path().join(name);
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let runner = toolyard_sandbox::ScriptRunner::with_program(&program);
        let start = Instant::now();
        let mut failure =
            runner.run("", limits(300_000), Arc::new(Echo::default()), Default::default()).await.unwrap_err();
        while failure.cause.to_string().contains("busy") {
            // Another test's child, between fork and exec, still holds the file open for writing.
            tokio::time::sleep(Duration::from_millis(10)).await;
            failure = runner.run("", limits(300_000), Arc::new(Echo::default()), Default::default()).await.unwrap_err();
        }
        assert!(failure.cause.to_string().contains(why), "{name}: {}", failure.cause);
        assert!(start.elapsed() < Duration::from_secs(300), "{name}: its sleep of 600 seconds was waited for");
    }
    runner().probe().await.unwrap();
}
